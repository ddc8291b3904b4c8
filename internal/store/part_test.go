package store

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// For any entries, the parts have all names exactly once, each with the other fields of its entry.
// No part exceeds the limits unless it is a single name.
func TestJournalParts(t *testing.T) {
	t.Parallel()
	names := func(prefix string, n, size int) (list []string) {
		for i := range n {
			list = append(list, fmt.Sprintf("%s%d%s", prefix, i, strings.Repeat("x", size)))
		}
		return list
	}
	entries := []JournalEntry{
		{ID: 1, Entity: "a", EntityID: "1", Keys: []string{"k"}},
		{ID: 2, Entity: "a", EntityID: "2", HoldMillis: 7, Keys: names("k", partNames/2, 0), Patterns: names("p", partNames, 0), Sets: names("s", partNames, 0)},
		{ID: 3, Entity: "b", EntityID: "3", Keys: names("l", 3, partBytes)},
		{ID: 4, Entity: "b", EntityID: "4"},
		{ID: 5, Entity: "b", EntityID: "5", Sets: names("t", 1, partBytes)},
		{ID: 6, Entity: "b", EntityID: "6", Keys: names("m", 9, partBytes/4)},
	}
	for i := range 50 {
		entries = append(entries, JournalEntry{ID: uint64(7 + i), Entity: "c", Patterns: names("q", 1000, 5)})
	}
	want := map[string][]string{}
	add := func(to map[string][]string, e *JournalEntry) {
		of := fmt.Sprint(e.ID, e.Entity, e.EntityID, e.HoldMillis)
		to[of] = append(to[of], slices.Concat(e.Keys, e.Patterns, e.Sets)...)
	}
	for i := range entries {
		add(want, &entries[i])
	}
	got, parts := map[string][]string{}, 0
	for rest := slices.Clone(entries); len(rest) > 0; parts++ {
		var part []JournalEntry
		part, rest = Cut(rest)
		n, bytes := 0, 0
		for i := range part {
			n, bytes = n+part[i].Names(), bytes+part[i].Bytes()
			add(got, &part[i])
		}
		if len(part) == 0 || n > 1 && (n > partNames || bytes > partBytes) {
			t.Fatalf("part %d has %d entries of %d names and %d bytes", parts, len(part), n, bytes)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d entries of %d", len(got), len(want))
	}
	for of, names := range want {
		if !slices.Equal(got[of], names) {
			t.Errorf("entry %s has %d names, want %d", of, len(got[of]), len(names))
		}
	}
}
