package worker

import (
	"testing"
	"time"
)

// Between the claim and the servers, a row of one exact key allocates its plan, which is a list and
// a text. The fixed allocations of a batch do not grow from 10 to 1,000 rows, nor with the size of
// the map. Not parallel, since allocations are counted for the whole process.
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

// Without a hook a batch allocates nothing for traces.
func TestAllocationsWithoutSpans(t *testing.T) {
	rows := couponRows(1000)
	for i := range rows {
		rows[i].Trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	}
	var hooks Hooks
	if got := testing.AllocsPerRun(20, func() { hooks.callBatch(rows, time.Now(), Result{}, 0, nil) }); got != 0 {
		t.Errorf("%v allocations", got)
	}
}
