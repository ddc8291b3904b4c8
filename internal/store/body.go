package store

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"sync"
)

// The journal's body: one byte of format, then a flate stream with the number of entries and, for
// each entry, its ID, entity, entity ID, trace, keys, patterns and sets. Numbers are uvarints. A
// text is its length and its bytes; a list is its length and its texts.
//
// After the stream, if an entry has a hold time, come pairs of numbers up to the last such entry:
// how many consecutive entries have the same hold time, and that time in milliseconds. Workers that
// do not support hold times stop at the end of the stream.
//
// Then comes a pair for each partial entry: 0 and the index of the entry. Workers that do not
// support partial entries read such a pair as a hold time of no entries, and the entry as one of a
// settled row.
const entryFormat = 1

// A packer holds buffers that are expensive to allocate for each batch.
type packer struct {
	deflate *flate.Writer
	raw     []byte
}

var packers = sync.Pool{New: func() any {
	w, err := flate.NewWriter(io.Discard, flate.BestSpeed)
	if err != nil {
		panic(err) // unreachable: the level is a constant that flate knows
	}
	return &packer{deflate: w}
}}

// maxKept is the largest text, in bytes, for which a packer keeps its buffer.
const maxKept = 1 << 20

// EncodeEntries packs entries for the journal.
func EncodeEntries(entries []JournalEntry) ([]byte, error) {
	p := packers.Get().(*packer)
	defer packers.Put(p)
	raw := binary.AppendUvarint(p.raw[:0], uint64(len(entries)))
	for i := range entries {
		raw = entries[i].append(raw)
	}
	if p.raw = nil; cap(raw) <= maxKept {
		p.raw = raw
	}
	out := bytes.NewBuffer(make([]byte, 0, len(raw)/4+64))
	out.WriteByte(entryFormat)
	p.deflate.Reset(out)
	if _, err := p.deflate.Write(raw); err != nil {
		return nil, fmt.Errorf("pack journal: %w", err)
	}
	if err := p.deflate.Close(); err != nil {
		return nil, fmt.Errorf("pack journal: %w", err)
	}
	return appendHolds(out.Bytes(), entries), nil
}

// appendHolds appends the data after the stream, which is usually empty.
func appendHolds(b []byte, entries []JournalEntry) []byte {
	held := len(entries) // up to and including the last entry with a hold time
	for held > 0 && entries[held-1].HoldMillis == 0 {
		held--
	}
	for from := 0; from < held; {
		to := from + 1
		for to < held && entries[to].HoldMillis == entries[from].HoldMillis {
			to++
		}
		b = binary.AppendUvarint(b, uint64(to-from))
		b = binary.AppendUvarint(b, uint64(entries[from].HoldMillis))
		from = to
	}
	for i := range entries {
		if entries[i].Partial {
			b = binary.AppendUvarint(b, 0)
			b = binary.AppendUvarint(b, uint64(i))
		}
	}
	return b
}

func (e *JournalEntry) append(b []byte) []byte {
	b = binary.AppendUvarint(b, e.ID)
	for _, s := range [...]string{e.Entity, e.EntityID, e.Trace} {
		b = appendText(b, s)
	}
	for _, texts := range [...][]string{e.Keys, e.Patterns, e.Sets} {
		b = binary.AppendUvarint(b, uint64(len(texts)))
		for _, s := range texts {
			b = appendText(b, s)
		}
	}
	return b
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// maxUnpacked bounds the unpacked size of a body, so a corrupt body cannot exhaust the memory. The
// worker cuts its batches far below it.
const maxUnpacked = 256 << 20

var errBody = errors.New("journal body is damaged")

// A flate reader has 40 KB of memory, so a search of many small bodies reuses it.
var unpackers = sync.Pool{New: func() any { return flate.NewReader(nil) }}

// DecodeEntries unpacks a journal body. A body that EncodeEntries did not write gives an error.
func DecodeEntries(body []byte) ([]JournalEntry, error) {
	if len(body) == 0 || body[0] != entryFormat {
		return nil, fmt.Errorf("%w: unknown format", errBody)
	}
	all := bytes.NewReader(body[1:]) // a ByteReader, so flate reads only its stream
	z := unpackers.Get().(io.Reader)
	defer unpackers.Put(z)
	if err := z.(flate.Resetter).Reset(all, nil); err != nil {
		return nil, fmt.Errorf("%w: %w", errBody, err)
	}
	raw, err := io.ReadAll(io.LimitReader(z, maxUnpacked+1))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errBody, err)
	}
	if len(raw) > maxUnpacked {
		return nil, fmt.Errorf("%w: more than %d bytes", errBody, maxUnpacked)
	}
	d := decoder{rest: raw}
	var entries []JournalEntry
	for n := d.number(); n > 0 && !d.bad; n-- {
		entries = append(entries, d.entry())
	}
	if d.bad || len(d.rest) > 0 || !readHolds(body[len(body)-all.Len():], entries) {
		return nil, errBody
	}
	return entries, nil
}

// readHolds reads the data that appendHolds has appended, and reports whether it fits the entries.
func readHolds(b []byte, entries []JournalEntry) bool {
	d, all := decoder{rest: b}, entries
	for len(d.rest) > 0 {
		n, ms := d.number(), d.number()
		if d.bad || n > uint64(len(entries)) || ms > math.MaxInt64 || n == 0 && ms >= uint64(len(all)) {
			return false
		}
		if n == 0 {
			all[ms].Partial = true
		}
		for i := range entries[:n] {
			entries[i].HoldMillis = int64(ms)
		}
		entries = entries[n:]
	}
	return !d.bad
}

// A decoder reads from rest. bad stays set after the first value that does not fit.
type decoder struct {
	rest []byte
	bad  bool
}

func (d *decoder) entry() JournalEntry {
	return JournalEntry{
		ID: d.number(), Entity: d.text(), EntityID: d.text(), Trace: d.text(),
		Keys: d.texts(), Patterns: d.texts(), Sets: d.texts(),
	}
}

func (d *decoder) number() uint64 {
	v, n := binary.Uvarint(d.rest)
	if n <= 0 {
		d.bad, d.rest = true, nil
		return 0
	}
	d.rest = d.rest[n:]
	return v
}

func (d *decoder) text() string {
	n := d.number()
	if n > uint64(len(d.rest)) {
		d.bad, d.rest = true, nil
		return ""
	}
	s := string(d.rest[:n])
	d.rest = d.rest[n:]
	return s
}

func (d *decoder) texts() []string {
	var out []string
	for n := d.number(); n > 0 && !d.bad; n-- {
		out = append(out, d.text())
	}
	return out
}

// Hash returns an entity's hash in the hashes of a journal row. A search reads the hashes and
// unpacks only the bodies that may contain the entity. It is the 32-bit FNV-1a hash of the entity,
// a zero byte and the ID.
func Hash(entity, id string) uint32 {
	h := fnv32a(fnvOffset, entity)
	h *= fnvPrime // of the zero byte
	return fnv32a(h, id)
}

// FNV-1a as in hash/fnv, whose interfaces cost three allocations per row.
const (
	fnvOffset uint32 = 2166136261
	fnvPrime  uint32 = 16777619
)

func fnv32a(h uint32, s string) uint32 {
	for i := range len(s) {
		h = (h ^ uint32(s[i])) * fnvPrime
	}
	return h
}

// Hashes returns the entries' distinct hashes in ascending order, four bytes each, big-endian.
func Hashes(entries []JournalEntry) []byte {
	hashes := make([]uint32, len(entries))
	for i := range entries {
		hashes[i] = Hash(entries[i].Entity, entries[i].EntityID)
	}
	slices.Sort(hashes)
	out := make([]byte, 0, 4*len(hashes))
	for _, m := range slices.Compact(hashes) {
		out = binary.BigEndian.AppendUint32(out, m)
	}
	return out
}
