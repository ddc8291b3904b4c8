package store

import (
	"bytes"
	"fmt"
	"hash/fnv"
	"math"
	"reflect"
	"slices"
	"testing"
)

func manyEntries(n int) []JournalEntry {
	entries := make([]JournalEntry, n)
	for i := range entries {
		entries[i] = JournalEntry{
			ID: uint64(i) + 1, Entity: "product", EntityID: fmt.Sprint(i),
			Keys:     []string{fmt.Sprintf("zahraah:prod:product:%d", i)},
			Patterns: []string{"zahraah:prod:category:7:list:*"},
		}
	}
	return entries
}

func TestEntriesSurvive(t *testing.T) {
	t.Parallel()
	odd := []JournalEntry{
		{ID: 1<<64 - 1, Entity: "é", EntityID: "\n\"{}\x00\xff", Trace: "t", Keys: []string{"", "*"}, Sets: []string{"tag:x"}},
		{},
	}
	held := manyEntries(7)
	held[1].HoldMillis, held[2].HoldMillis, held[5].HoldMillis = 2000, 2000, 3_600_000
	for _, entries := range [][]JournalEntry{odd, manyEntries(1000), nil, held} {
		body, err := EncodeEntries(entries)
		if err != nil {
			t.Fatal(err)
		}
		got, err := DecodeEntries(body)
		if err != nil || !reflect.DeepEqual(got, entries) {
			t.Errorf("got %v, %v", got, err)
		}
	}
}

// Workers without support for hold times can read a body with some, since they stop at the end of
// the stream. A body without hold times equals the body that they wrote.
func TestBodiesFromBeforeHolds(t *testing.T) {
	t.Parallel()
	body := func(entries []JournalEntry) []byte {
		b, err := EncodeEntries(entries)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	held := manyEntries(3)
	held[0].HoldMillis = 2000
	plain, with := body(manyEntries(3)), body(held)
	if !bytes.Equal(with[:len(plain)], plain) || len(with) != len(plain)+3 {
		t.Errorf("%d bytes with a hold time, %d without", len(with), len(plain))
	}
}

func TestDamagedBodiesAreRefused(t *testing.T) {
	t.Parallel()
	good, err := EncodeEntries(manyEntries(3))
	if err != nil {
		t.Fatal(err)
	}
	after := func(tail ...byte) []byte { return append(slices.Clone(good), tail...) }
	for _, body := range [][]byte{
		nil, {2}, good[:len(good)-4], good[:1], append([]byte{9}, good[1:]...),
		after(1), after(4, 1), after(1, 1, 0x80), after(1, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1),
	} {
		if got, err := DecodeEntries(body); err == nil {
			t.Errorf("decoded %v", got)
		}
	}
}

func TestHashesAreSortedAndSingle(t *testing.T) {
	t.Parallel()
	entries := append(manyEntries(3), manyEntries(3)...)
	hashes := Hashes(entries)
	if len(hashes) != 3*4 {
		t.Fatalf("%d bytes", len(hashes))
	}
	if Hash("a", "bc") == Hash("ab", "c") {
		t.Error("entity and ID are not separated")
	}
}

// Existing journals are searched by this hash.
func TestHashIsFNV(t *testing.T) {
	t.Parallel()
	for _, texts := range [][2]string{{"product", "42"}, {"", ""}, {"سعر", "\x00\xff"}} {
		h := fnv.New32a()
		_, _ = h.Write([]byte(texts[0] + "\x00" + texts[1]))
		if got := Hash(texts[0], texts[1]); got != h.Sum32() {
			t.Errorf("%q: %08x, want %08x", texts, got, h.Sum32())
		}
	}
}

// Decoding ends for any bytes, and accepted bytes can be written and read again.
func FuzzDecodeEntries(f *testing.F) {
	for _, entries := range [][]JournalEntry{nil, manyEntries(2)} {
		body, err := EncodeEntries(entries)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		entries, err := DecodeEntries(body)
		if err != nil {
			return
		}
		again, err := EncodeEntries(entries)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := DecodeEntries(again); err != nil || !reflect.DeepEqual(got, entries) {
			t.Fatalf("%v became %v, %v", entries, got, err)
		}
	})
}

func BenchmarkEncodeEntries(b *testing.B) {
	entries := manyEntries(1000)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := EncodeEntries(entries); err != nil {
			b.Fatal(err)
		}
	}
}

// A partial entry is recognized, and a worker without support for partial entries reads it like any
// other.
func TestPartialEntries(t *testing.T) {
	t.Parallel()
	entries := []JournalEntry{
		{ID: 1, Entity: "a", EntityID: "1", Keys: []string{"k"}, HoldMillis: 5},
		{ID: 2, Entity: "a", EntityID: "2", Keys: []string{"l"}, Partial: true},
		{ID: 3, Entity: "a", EntityID: "3", Patterns: []string{"p*"}},
		{ID: 4, Entity: "a", EntityID: "4", Sets: []string{"s"}, HoldMillis: 7, Partial: true},
		{ID: 5, Entity: "a", EntityID: "5", Sets: []string{"t"}},
	}
	body, err := EncodeEntries(entries)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := DecodeEntries(body); err != nil || !reflect.DeepEqual(got, entries) {
		t.Errorf("%+v, %v", got, err)
	}
	older := entries[:len(entries):len(entries)]
	d := decoder{rest: appendHolds(nil, entries)}
	for len(d.rest) > 0 { // as such a worker does
		n, ms := d.number(), d.number()
		if d.bad || n > uint64(len(older)) || ms > math.MaxInt64 {
			t.Fatal("an older worker reads the batch as damaged")
		}
		for i := range older[:n] {
			if older[i].HoldMillis != int64(ms) {
				t.Errorf("row %d is held for %d ms", older[i].ID, ms)
			}
		}
		older = older[n:]
	}
	if _, err := DecodeEntries(append(body, 0, 5)); err == nil {
		t.Error("a missing entry is partial")
	}
}
