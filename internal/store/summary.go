package store

import (
	"encoding/binary"
	"errors"
	"slices"

	"github.com/unstale/unstale/protocol"
)

// A block is a run of the journal's batches that is summarized. Its summary lists, for each name
// that can be searched for, the batches that have it, as hashes. A listed batch may not have the
// name, but a batch that has it is always listed. The hashes are distributed over buckets, one row
// of cache_outbox_summaries each, so a search reads 1/64 of all summaries.
//
// Summaries only save work. Batches outside of all blocks are searched one by one, and so are the
// batches of a block that no longer ends with the batch that was summarized.
const (
	nameBuckets = 64
	// a key is looked up by each of its prefixes, so all patterns share one bucket
	patternBucket = nameBuckets
	nowhereBucket = 253 // no row
	headBucket    = 254 // one row per block, with the batches that could not be unpacked
	turnBucket    = 255 // one row, locked by the process that summarizes
)

// blockLimits are the limits of a block. Its last batch may exceed them.
type blockLimits struct {
	batches int
	rows    int
	bytes   int // of packed bodies
	items   int
	spread  uint64 // IDs from the first to the last
}

// usualBlocks keeps the work of a search without a summary small, and the size of each summary.
var usualBlocks = blockLimits{batches: 4096, rows: 16_384, bytes: 256 << 10, items: 1 << 18, spread: 1 << 16}

// Number of hash bits in addition to the bucket. In ten million rows with six names each, fifteen
// batches are listed by mistake. A key of a hundred characters looks up as many prefixes, so
// patterns have more bits.
const (
	nameBits    = 16
	patternBits = 32
)

// The kinds of names that can be searched for.
const (
	itemEntity  = 'n' // an entity's name
	itemObject  = 'e' // an entity and an ID
	itemTrace   = 't'
	itemRow     = 'r' // 256 consecutive row IDs, which a batch mostly has together
	itemName    = 'k' // a key, or an index set
	itemPattern = 'p' // the literal text that a pattern begins with
)

// A name is where a searchable name is listed: a bucket, and a hash in it.
type name struct {
	bucket uint8
	hash   uint32
}

// nameOf returns the bucket and hash of a text, which may have several parts.
func nameOf(kind byte, text ...string) name {
	h := (fnv64Offset ^ uint64(kind)) * fnv64Prime
	for _, part := range text {
		for i := range len(part) {
			h = (h ^ uint64(part[i])) * fnv64Prime
		}
		h *= fnv64Prime // of a zero byte
	}
	h ^= h >> 32 // the last bytes have little effect on FNV's high bits
	h *= 0xd6e8feb86659fd93
	h ^= h >> 32
	if kind == itemPattern {
		return name{patternBucket, uint32(h) & (1<<patternBits - 1)}
	}
	return name{uint8(h % nameBuckets), uint32(h>>8) & (1<<nameBits - 1)}
}

// FNV-1a.
const (
	fnv64Offset uint64 = 14695981039346656037
	fnv64Prime  uint64 = 1099511628211
)

// rowName returns the name of a row.
func rowName(id uint64) name {
	return nameOf(itemRow, string(binary.BigEndian.AppendUint64(nil, id>>8)))
}

// eachName calls add with every name that finds the entry.
func (e *JournalEntry) eachName(add func(name)) {
	if !e.IsSweep() {
		add(nameOf(itemEntity, e.Entity))
		add(nameOf(itemObject, e.Entity, e.EntityID))
		if e.ID != 0 {
			add(rowName(e.ID))
		}
	}
	if e.Trace != "" {
		add(nameOf(itemTrace, e.Trace))
	}
	for _, list := range [...][]string{e.Keys, e.Sets} {
		for _, text := range list {
			add(nameOf(itemName, text))
		}
	}
	for _, pattern := range e.Patterns {
		if glob, err := protocol.CompileGlob(pattern); err == nil { // an invalid one matches nothing
			add(nameOf(itemPattern, glob.Prefix()))
		}
	}
}

// An item states that a batch has a name. It consists of bucket, hash and number, the distance of
// the batch's ID from the block's after_id, packed so that items sort in this order.
type item uint64

const numberBits = 20 // more than blockLimits.spread has

func newItem(n name, number uint64) item {
	return item(uint64(n.bucket)<<(patternBits+numberBits) | uint64(n.hash)<<numberBits | number)
}

func (i item) bucket() uint8  { return uint8(i >> (patternBits + numberBits)) }
func (i item) hash() uint64   { return uint64(i) >> numberBits & (1<<patternBits - 1) }
func (i item) number() uint64 { return uint64(i) & (1<<numberBits - 1) }

const itemFormat = 1

// appendItems packs the items of one bucket, which must be sorted and distinct: one byte of format,
// then two numbers per item. The first is the distance of its hash from the previous hash. The
// second is its number, as a distance from the previous number if the hash is the same.
func appendItems(b []byte, items []item) []byte {
	b = append(b, itemFormat)
	hash, number := uint64(0), uint64(0)
	for i, it := range items {
		if i > 0 && it.hash() != hash {
			number = 0
		}
		b = binary.AppendUvarint(b, it.hash()-hash)
		b = binary.AppendUvarint(b, it.number()-number)
		hash, number = it.hash(), it.number()
	}
	return b
}

var errItems = errors.New("summary is damaged")

// findItems calls found with the numbers of the items that have one of the hashes, which must be
// sorted.
func findItems(packed []byte, hashes []uint32, found func(number uint64)) error {
	if len(packed) == 0 || packed[0] != itemFormat {
		return errItems
	}
	d := decoder{rest: packed[1:]}
	hash, number := uint64(0), uint64(0)
	for len(d.rest) > 0 {
		distance := d.number()
		if distance > 0 {
			number = 0
		}
		hash += distance
		number += d.number()
		if d.bad || hash >= 1<<patternBits {
			return errItems
		}
		if _, ok := slices.BinarySearch(hashes, uint32(hash)); ok {
			found(number)
		}
	}
	return nil
}
