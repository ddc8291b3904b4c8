package outbox

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"slices"
	"sync"
)

// The journal's body: one byte of format, then a flate stream of the number of entries and, for each, id,
// entity, entity id, trace, keys, patterns and sets. Numbers are uvarints; a text is its length and its
// bytes; a list is its length and its texts.
const entryFormat = 1

var deflaters = sync.Pool{New: func() any {
	w, err := flate.NewWriter(io.Discard, flate.BestSpeed)
	if err != nil {
		panic(err) // unreachable: the level is a constant that flate knows
	}
	return w
}}

// EncodeEntries packs entries for the journal.
func EncodeEntries(entries []Entry) ([]byte, error) {
	raw := binary.AppendUvarint(nil, uint64(len(entries)))
	for i := range entries {
		raw = entries[i].append(raw)
	}
	out := bytes.NewBuffer(make([]byte, 0, len(raw)/4+64))
	out.WriteByte(entryFormat)
	w := deflaters.Get().(*flate.Writer)
	defer deflaters.Put(w)
	w.Reset(out)
	if _, err := w.Write(raw); err != nil {
		return nil, fmt.Errorf("pack journal: %w", err)
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("pack journal: %w", err)
	}
	return out.Bytes(), nil
}

func (e *Entry) append(b []byte) []byte {
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

// maxUnpacked bounds what a body may unpack to, so that a damaged one cannot exhaust the memory. The worker
// cuts its batches far below it.
const maxUnpacked = 256 << 20

var errBody = errors.New("journal body is damaged")

// DecodeEntries unpacks a journal body. A body that EncodeEntries did not write gives an error.
func DecodeEntries(body []byte) ([]Entry, error) {
	if len(body) == 0 || body[0] != entryFormat {
		return nil, fmt.Errorf("%w: unknown format", errBody)
	}
	z := flate.NewReader(bytes.NewReader(body[1:]))
	raw, err := io.ReadAll(io.LimitReader(z, maxUnpacked+1))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errBody, err)
	}
	if len(raw) > maxUnpacked {
		return nil, fmt.Errorf("%w: more than %d bytes", errBody, maxUnpacked)
	}
	d := decoder{rest: raw}
	var entries []Entry
	for n := d.number(); n > 0 && !d.bad; n-- {
		entries = append(entries, d.entry())
	}
	if d.bad || len(d.rest) > 0 {
		return nil, errBody
	}
	return entries, nil
}

// A decoder reads from rest; bad stays set after the first thing that does not fit.
type decoder struct {
	rest []byte
	bad  bool
}

func (d *decoder) entry() Entry {
	return Entry{
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

// Hash is an entity's mark in a journal row's hashes: a search reads them and unpacks only the bodies that
// may hold it. 32 bits, FNV-1a of the entity, a zero byte and the id.
func Hash(entity, id string) uint32 {
	h := fnv.New32a()
	_, _ = io.WriteString(h, entity) // a hash never fails
	_, _ = h.Write([]byte{0})
	_, _ = io.WriteString(h, id)
	return h.Sum32()
}

// hashes lists the entries' marks, sorted, each once, four bytes each, big-endian.
func hashes(entries []Entry) []byte {
	marks := make([]uint32, len(entries))
	for i := range entries {
		marks[i] = Hash(entries[i].Entity, entries[i].EntityID)
	}
	slices.Sort(marks)
	out := make([]byte, 0, 4*len(marks))
	for _, m := range slices.Compact(marks) {
		out = binary.BigEndian.AppendUint32(out, m)
	}
	return out
}
