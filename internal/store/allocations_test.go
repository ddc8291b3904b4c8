package store

import (
	"testing"
)

// A batch allocates memory for itself and not for its rows: a journal entry, a hash and an ID cost
// no allocation. One allocation in every tenth row fails the test. A batch takes 9 allocations, and
// up to 33 under the race detector, where sync.Pool drops items at random. Not parallel, because
// the test counts the allocations of the process.
func TestAllocationsOfASettlement(t *testing.T) {
	const rows, limit = 1000, 100
	entries := couponEntries(rows)
	ids := make([]uint64, len(entries))
	for i := range entries {
		ids[i] = entries[i].ID
	}
	got := testing.AllocsPerRun(20, func() {
		if _, err := EncodeEntries(entries); err != nil {
			t.Fatal(err)
		}
		Hashes(entries)
		spanned(spans(ids))
	})
	if got > limit {
		t.Errorf("%d rows: %v allocations, want at most %d", rows, got, limit)
	}
}
