package store

import (
	"fmt"
	"testing"
)

// BenchmarkHashes hashes 1,000 rows for the journal's index.
func BenchmarkHashes(b *testing.B) {
	entries := couponEntries(1000)
	b.ReportAllocs()
	for b.Loop() {
		Hashes(entries)
	}
}

// BenchmarkSpans builds a condition of 1,000 IDs with a gap after every n-th ID.
func BenchmarkSpans(b *testing.B) {
	for _, every := range []int{1000, 20, 5} {
		ids := make([]uint64, 1000)
		for i := range ids {
			ids[i] = uint64(i + i/every)
		}
		b.Run(fmt.Sprintf("gap every %d", every), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				spanned(spans(ids))
			}
		})
	}
}

// couponEntries returns journal entries of n rows with one exact key each.
func couponEntries(n int) []JournalEntry {
	entries := make([]JournalEntry, n)
	for i := range entries {
		id := fmt.Sprintf("code-%d", i)
		entries[i] = JournalEntry{ID: uint64(i + 1), Entity: "coupon", EntityID: id, Keys: []string{"zahraah:prod:coupon:" + id}}
	}
	return entries
}
