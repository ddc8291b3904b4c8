package keyspace_test

import (
	"testing"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/protocol"
)

// A key's lease and a set's private name are in its slot, or there is none: a command on both never
// crosses slots.
func FuzzSameSlot(f *testing.F) {
	for _, key := range []string{"", "a", "{", "}", "{}", "{}{a}", "a{b}c", "a{{b}}c", "}{", "a}b", "{a", "user:{1000}:cart", "\n{\xff}"} {
		f.Add(key)
	}
	f.Fuzz(func(t *testing.T, key string) {
		if lease, ok := protocol.LeaseKey(key); ok && protocol.Slot(lease) != protocol.Slot(key) {
			t.Errorf("lease %q is in slot %d, %q in %d", lease, protocol.Slot(lease), key, protocol.Slot(key))
		}
		if private := keyspace.PrivateName(key, 7); protocol.Slot(private) != protocol.Slot(key) {
			t.Errorf("private name %q is in slot %d, %q in %d", private, protocol.Slot(private), key, protocol.Slot(key))
		}
	})
}
