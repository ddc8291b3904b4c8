package worker

import (
	"fmt"
	"testing"
	"time"

	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/invalidation"
)

// The cost of the metrics of rows for a batch of a thousand rows of two entities, compared with
// some 11 ms of the batch.
func BenchmarkMetricsOfABatch(b *testing.B) {
	none := func(string) (string, bool) { return "", false }
	text := "version: 1\nentities:\n  one: {keys: [\"a:b:{id}\"]}\n  two: {keys: [\"a:c:{id}\"]}\n"
	m, err := invalidation.Parse("", []byte(text), none)
	if err != nil {
		b.Fatal(err)
	}
	metrics, q, c := newMetrics(m, false), &store.Queue{}, &store.Claim{Unseen: time.Now()}
	var done []uint64
	for id := range uint64(1000) {
		c.Rows = append(c.Rows, store.ClaimedRow{ID: id + 1, FirstID: id + 1, Entity: []string{"one", "two"}[id%2], EntityID: fmt.Sprint(id), CreatedAt: time.Now()})
		done = append(done, id+1)
	}
	b.ReportAllocs()
	for b.Loop() {
		metrics.maps.entities.addRows(c.Rows)
		metrics.late(q.Age, c, done, time.Now())
	}
}
