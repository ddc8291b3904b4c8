package worker

import "testing"

// Between the claim and the servers a row of one exact key allocates its plan, which is a list and a text. What a batch
// allocates for itself is not more for 1,000 rows than for 10, and the map's size does not matter. Not parallel, since
// allocations are counted for the whole process.
func TestAllocationsOfABatch(t *testing.T) {
	const perRow, perBatch = 2, 40
	cfg := Config{}.WithDefaults()
	for _, entities := range []int{1, 1000} {
		m := couponMap(t, entities)
		for _, size := range []int{10, 1000} {
			rows := couponRows(size)
			got := testing.AllocsPerRun(20, func() { batchOf(t, m, rows, cfg) })
			if got > float64(perRow*size+perBatch) {
				t.Errorf("%d rows, a map of %d entities: %v allocations, want %d a row and %d more at most", size, entities, got, perRow, perBatch)
			}
		}
	}
}
