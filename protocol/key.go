package protocol

import "strings"

const (
	// LeasePrefix begins the names of leases: see [LeaseKey].
	LeasePrefix = "lock:fill:"
	// HoldPrefix begins the names of tombstones: see [HoldKey].
	HoldPrefix = "lock:hold:"
	// StampPrefix is the prefix of the keys of tag versions: see [StampKey].
	StampPrefix = "stamp:"
)

// LeaseKey returns the key that a reader locks while it fills key. It is in the same Redis Cluster
// slot: a hash tag is kept, and a key without braces is wrapped in braces. It returns false for a
// key that cannot have a lease key: one whose braces form no hash tag (wrapping would change the
// slot), one that consists of a hash tag (its lease key is that of the text inside), and the empty
// key. Readers load such a key and do not store it.
func LeaseKey(key string) (string, bool) {
	return beside(LeasePrefix, key)
}

// HoldKey returns the key whose existence forbids to store anything under key, in the same slot. It
// returns false where LeaseKey does.
func HoldKey(key string) (string, bool) { return beside(HoldPrefix, key) }

// IsHoldKey reports whether name is one that HoldKey returns.
func IsHoldKey(name string) bool {
	inner, ok := strings.CutPrefix(name, HoldPrefix)
	return ok && hasHashTag(inner)
}

// beside returns a name with a prefix in the slot of key.
func beside(prefix, key string) (string, bool) {
	if !strings.ContainsAny(key, "{}") {
		if key == "" {
			return "", false
		}
		return prefix + "{" + key + "}", true
	}
	if !hasHashTag(key) || isWrapped(key) {
		return "", false
	}
	return prefix + key, true
}

// InnerKey returns the key that lease is the lease key of. It returns false for what LeaseKey never
// returns.
func InnerKey(lease string) (string, bool) {
	key, ok := strings.CutPrefix(lease, LeasePrefix)
	switch {
	case !ok:
		return "", false
	case isWrapped(key):
		return key[1 : len(key)-1], true
	case hasHashTag(key):
		return key, true
	}
	return "", false
}

// StampKey returns the key of the version of a tag.
func StampKey(tag string) string { return StampPrefix + tag }

func hasHashTag(key string) bool {
	_, ok := HashTag(key)
	return ok
}

// isWrapped reports whether key is {text} without any other brace.
func isWrapped(key string) bool {
	return len(key) > 2 && key[0] == '{' && key[len(key)-1] == '}' && !strings.ContainsAny(key[1:len(key)-1], "{}")
}
