package keyspace_test

import (
	"testing"

	"github.com/unstale/unstale/invalidation"
	"github.com/unstale/unstale/keyspace"
)

// The values are those of CLUSTER KEYSLOT; the first two are in Redis' own
// documentation too.
func TestSlot(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]uint16{
		"123456789": 12739, "somekey": 11058, "": 0, "foo": 12182, "foo{hash_tag}": 2515, "bar{hash_tag}": 2515,
		"{user1000}.following": 3443, "foo{}{bar}": 8363, "foo{{bar}}zap": 4015, "foo{bar}{zap}": 5061,
	} {
		if got := keyspace.Slot(key); got != want {
			t.Errorf("%q is in slot %d, want %d", key, got, want)
		}
	}
}

// A key's lease and a set's private name are in its slot, or there is none: a
// command on both never crosses slots (K5, guarantee 6).
func FuzzSameSlot(f *testing.F) {
	for _, key := range []string{"", "a", "{", "}", "{}", "{}{a}", "a{b}c", "a{{b}}c", "}{", "a}b", "{a", "user:{1000}:cart", "\n{\xff}"} {
		f.Add(key)
	}
	f.Fuzz(func(t *testing.T, key string) {
		if lease, ok := invalidation.LeaseKey(key); ok && keyspace.Slot(lease) != keyspace.Slot(key) {
			t.Errorf("lease %q is in slot %d, %q in %d", lease, keyspace.Slot(lease), key, keyspace.Slot(key))
		}
		if private := keyspace.PrivateName(key, 7); keyspace.Slot(private) != keyspace.Slot(key) {
			t.Errorf("private name %q is in slot %d, %q in %d", private, keyspace.Slot(private), key, keyspace.Slot(key))
		}
	})
}
