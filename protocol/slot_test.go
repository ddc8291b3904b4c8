package protocol

import "testing"

// The values are from CLUSTER KEYSLOT; the first two are also in the documentation of Redis.
func TestSlot(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]uint16{
		"123456789": 12739, "somekey": 11058, "": 0, "foo": 12182, "foo{hash_tag}": 2515, "bar{hash_tag}": 2515,
		"{user1000}.following": 3443, "foo{}{bar}": 8363, "foo{{bar}}zap": 4015, "foo{bar}{zap}": 5061,
	} {
		if got := Slot(key); got != want {
			t.Errorf("%q is in slot %d, want %d", key, got, want)
		}
	}
}
