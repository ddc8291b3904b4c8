package store

import (
	"encoding/binary"
	"errors"
	"slices"

	"github.com/unstale/unstale/protocol"
)

// A block is a run of the journal's batches that is summarised. Its summary lists, for each thing that somebody may
// search for, the batches that have it: as hashes, so a batch that is listed need not have it, and one that has it is
// always listed. The hashes are spread over buckets, a row of cache_outbox_summaries each, so that a search reads a
// sixty-fourth of all summaries.
//
// A summary only ever saves work: batches that belong to no block are searched one by one, and so are those of a block
// whose last batch is not the one that was summarised.
const (
	nameBuckets   = 64
	patternBucket = nameBuckets // a key is looked for by each of its prefixes, so all patterns are in one place
	nowhereBucket = 253         // no row
	headBucket    = 254         // one row a block, with the batches that could not be unpacked
	turnBucket    = 255         // one row, locked by whoever summarises
)

// blockLimits are what a block has at most, a last batch beyond them aside.
type blockLimits struct {
	batches int
	rows    int
	bytes   int // of packed bodies
	items   int
	spread  uint64 // ids from the first to the last
}

// usualBlocks keeps small what a search does without a summary, and what it reads of each.
var usualBlocks = blockLimits{batches: 4096, rows: 16_384, bytes: 256 << 10, items: 1 << 18, spread: 1 << 16}

// Bits of a hash that are kept beside the bucket. In ten million rows of six names, fifteen batches are listed by
// mistake. A key with a hundred characters asks for as many prefixes, so patterns have more.
const (
	nameBits    = 16
	patternBits = 32
)

// The kinds of things that are searched for.
const (
	itemEntity  = 'n' // an entity's name
	itemObject  = 'e' // an entity and an id
	itemTrace   = 't'
	itemRow     = 'r' // 256 ids of rows that follow each other, which a batch has mostly together
	itemName    = 'k' // a key, or an index set
	itemPattern = 'p' // the literal text that a pattern begins with
)

// A name is where a thing is listed: a bucket, and a hash in it.
type name struct {
	bucket uint8
	hash   uint32
}

// nameOf is a thing's place; its text may come in two parts.
func nameOf(kind byte, text ...string) name {
	h := (fnv64Offset ^ uint64(kind)) * fnv64Prime
	for _, part := range text {
		for i := range len(part) {
			h = (h ^ uint64(part[i])) * fnv64Prime
		}
		h *= fnv64Prime // of a zero byte
	}
	h ^= h >> 32 // FNV's high bits hardly know the last bytes
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

// rowName is a row's place.
func rowName(id uint64) name {
	return nameOf(itemRow, string(binary.BigEndian.AppendUint64(nil, id>>8)))
}

// eachName calls add with all that an entry is found by.
func (e *Entry) eachName(add func(name)) {
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
		if glob, err := protocol.CompileGlob(pattern); err == nil { // another one matches nothing
			add(nameOf(itemPattern, glob.Prefix()))
		}
	}
}

// An item says that a batch has a thing: bucket, hash and number, which is how far the batch's id is beyond the block's
// after_id. They are packed so that they sort in that order.
type item uint64

const numberBits = 20 // more than blockLimits.spread has

func newItem(n name, number uint64) item {
	return item(uint64(n.bucket)<<(patternBits+numberBits) | uint64(n.hash)<<numberBits | number)
}

func (i item) bucket() uint8  { return uint8(i >> (patternBits + numberBits)) }
func (i item) hash() uint64   { return uint64(i) >> numberBits & (1<<patternBits - 1) }
func (i item) number() uint64 { return uint64(i) & (1<<numberBits - 1) }

const itemFormat = 1

// appendItems packs the items of one bucket, sorted and each once: one byte of format, then for each the distance of its
// hash from the one before, and its number, which counts from the one before where the hash is the same.
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

// findItems calls found with the numbers of the items that have one of the hashes, which are sorted.
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
