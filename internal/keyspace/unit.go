package keyspace

import (
	"strings"

	"github.com/unstale/unstale/protocol"
)

// A unit is a key and the name of its lease, which are always unlinked by the same command. Lease
// is empty where the key can have none.
type unit struct {
	index      int // of the target or pattern that it comes from
	key, lease string
}

func newUnit(index int, key string) unit {
	lease, _ := protocol.LeaseKey(key)
	return unit{index: index, key: key, lease: lease}
}

// found returns the unit to unlink for a name that a scan found: the key with its lease if the key
// matches, even if only the lease exists. No pattern matches a tombstone, nor another of unstale's
// own names, such as an index set that is being cleared.
func found(m *Matcher, name string) (unit, bool) {
	if protocol.IsHoldKey(name) || strings.HasPrefix(name, protocol.Prefix) {
		return unit{}, false
	}
	if index := m.First(name); index >= 0 {
		return newUnit(index, name), true
	}
	if inner, isLease := protocol.InnerKey(name); isLease {
		if index := m.First(inner); index >= 0 {
			return unit{index: index, key: inner, lease: name}, true
		}
	}
	return unit{}, false
}

func (u unit) isTombstone() bool { return protocol.IsHoldKey(u.key) }

// size counts names and bytes.
func (u unit) size() (names, bytes int) {
	if u.lease == "" {
		return 1, len(u.key)
	}
	return 2, len(u.lease) + len(u.key)
}
