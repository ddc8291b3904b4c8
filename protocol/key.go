package protocol

import (
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

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

// SlotCount is the number of hash slots of a Redis Cluster.
const SlotCount = 16384

// crcTable serves CRC-16/XMODEM, the checksum that Redis Cluster uses: polynomial 0x1021, initial
// value 0, not reflected.
var crcTable = func() (table [256]uint16) {
	for i := range table {
		crc := uint16(i) << 8
		for range 8 {
			carry := crc&0x8000 != 0
			crc <<= 1
			if carry {
				crc ^= 0x1021
			}
		}
		table[i] = crc
	}
	return table
}()

// Slot returns the hash slot of a key, from the bytes of its hash tag if it has one and from all of
// its bytes otherwise.
func Slot(key string) uint16 {
	if tag, ok := HashTag(key); ok {
		key = tag
	}
	var crc uint16
	for i := range len(key) {
		crc = crc<<8 ^ crcTable[byte(crc>>8)^key[i]]
	}
	return crc % SlotCount
}

// HashTag returns the text between the first { and the first } after it, if that is not empty,
// exactly as Redis does.
func HashTag(key string) (string, bool) {
	_, rest, ok := strings.Cut(key, "{")
	if !ok {
		return "", false
	}
	tag, _, ok := strings.Cut(rest, "}")
	return tag, ok && tag != ""
}

// Names in Redis that workers, readers, locks and limits have to agree on.
const (
	// DefaultChannel is the channel of invalidation messages if the map names none.
	DefaultChannel = "cache:invalidate"
	// DefaultWakeChannel is the channel that wakes workers if no setting names another.
	DefaultWakeChannel = "cache:outbox:wake"
	// Prefix begins the names of all keys that workers keep for themselves.
	Prefix = "unstale:"
	// BeaconPrefix begins the names of beacons: write markers that reveal lost writes.
	BeaconPrefix = Prefix + "beacon:"
	// SetPrefix begins the private names that index sets have while a worker clears them.
	SetPrefix = Prefix + "set:"
	// AlivePrefix begins the names of the keys that show when a worker last wrote to a server.
	AlivePrefix = Prefix + "alive"
)

// MaxID is the length limit of an ID in the outbox, in characters.
const MaxID = 255

// readsVersionLength is the number of hex digits of a fingerprint of reads.
const readsVersionLength = 12

// ReadsVersion returns the fingerprint of what readers store: 12 hex digits of the SHA-256 of a
// hash of the map's section reads and of the values of the vars that it uses, in file order.
// Readers and workers compute it, so an operator sees readers that were built from another map, or
// that run with another environment.
func ReadsVersion(hash string, values []string) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "reads 1 %s %q", hash, values))
	return hex.EncodeToString(sum[:])[:readsVersionLength]
}

const (
	// PopularPrefix begins the names of the sorted sets where readers count reads: see [PopularAt].
	PopularPrefix = Prefix + "popular:"
	// MostPopular is how many keys such a set keeps: those with the highest scores.
	MostPopular = 5000
	// MaxPopularKey is the length limit of a key in it, in bytes.
	MaxPopularKey = 256
	// PopularLife is the TTL of the set, from the latest report on.
	PopularLife = 2 * popularEra
	// PopularDecay is the factor for the scores of a set to compare them with scores of the next
	// set.
	PopularDecay = 1.0 / (1 << 63) / (1 << 63) / (1 << 2)

	popularHalfLife = time.Hour
	popularEra      = 128 * popularHalfLife // of one set: weights stay in range
)

// PopularAt returns the name of the sorted set of a time of Redis, in milliseconds. Readers whose
// keys begin with prefix add their reads to it. Its members are keys without the prefix. A read
// adds weight, which doubles each hour, so older reads count for less. previous is the set of the
// time before: see PopularDecay.
func PopularAt(prefix string, ms int64) (key, previous string, weight float64) {
	name := func(era int64) string { return PopularPrefix + strconv.FormatInt(era, 10) + ":" + prefix }
	era, since := ms/popularEra.Milliseconds(), ms%popularEra.Milliseconds()
	return name(era), name(era - 1), math.Exp2(float64(since) / float64(popularHalfLife.Milliseconds()))
}

// for the scripts

// The scripts of the read side, as Redis runs them (EVAL, EVALSHA). Each documents its KEYS, ARGV
// and reply. All KEYS of one call are in one slot. Every script may be sent twice, even much later:
// a late copy stores no value that was unlinked meanwhile.
var (
	//go:embed scripts/lease.lua
	LeaseScript string
	//go:embed scripts/fill.lua
	FillScript string
	//go:embed scripts/release.lua
	ReleaseScript string
	//go:embed scripts/stamp.lua
	StampScript string
	//go:embed scripts/expire.lua
	ExpireScript string
)
