package store

import "testing"

// What a batch settles allocates for the batch and not for its rows: a journal entry, a hash and an id cost none. The
// race detector makes pools forget, so that it is 9 without it and up to 25 with it. Not parallel, since allocations
// are counted for the whole process.
func TestAllocationsOfASettlement(t *testing.T) {
	const perBatch = 30
	for _, size := range []int{10, 1000} {
		entries := couponEntries(size)
		ids := make([]uint64, size)
		for i := range entries {
			ids[i] = entries[i].ID
		}
		got := testing.AllocsPerRun(20, func() {
			if _, err := EncodeEntries(entries); err != nil {
				t.Fatal(err)
			}
			hashes(entries)
			spanned(spans(ids))
		})
		if got > perBatch {
			t.Errorf("%d rows: %v allocations, want %d at most", size, got, perBatch)
		}
	}
}
