package worker_test

import (
	"testing"

	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/outbox"
	"github.com/unstale/unstale/worker"
)

const countedMap = `version: 1
publish: {channel: "cache:invalidate"}
entities:
  exact: {keys: ["shop:exact:{id}"], repeat: [1h]}
  pattern: {patterns: ["shop:pattern:{id}:*"]}
`

// Rows with a key are counted when they are settled, and rows that die when they do. Rows with only
// a pattern, scheduled rows and repeats are not. The metrics have the same counts.
func TestWhatMinutesCount(t *testing.T) {
	t.Parallel()
	w := newWorld(t, countedMap)
	r := w.worker(worker.Config{BatchRows: 2})
	w.enqueue(
		outbox.Invalidation{Entity: "exact", ID: "1"}, outbox.Invalidation{Entity: "pattern", ID: "2"}, outbox.Invalidation{Entity: "exact", ID: "3"},
		outbox.Invalidation{Entity: "nobody", ID: "4"}, outbox.Invalidation{Entity: "pattern", ID: "5"}, outbox.Invalidation{Entity: "pattern", ID: "6"},
	)
	// a retry of an hour ago, and a scheduled row
	w.exec(`INSERT INTO cache_outbox_delayed (entity, entity_id, created_at, due_at, first_id, attempts)
VALUES ('exact', '7', UTC_TIMESTAMP(6) - INTERVAL 1 HOUR, UTC_TIMESTAMP(6), 7, 1)`)
	w.exec("INSERT INTO cache_outbox_delayed (entity, entity_id, due_at) VALUES ('exact', '8', UTC_TIMESTAMP(6))")
	r.drain(t)
	// their repeats
	w.exec("UPDATE cache_outbox_delayed SET due_at = UTC_TIMESTAMP(6) WHERE repeated = 1")
	r.drain(t)
	f, err := store.ReadFigures(t.Context(), r.store.Sessions)
	if err != nil {
		t.Fatal(err)
	}
	hour := f.Windows[0]
	if hour.Rows != 3 || hour.Dead != 1 || hour.Within10s != 2 || hour.Invalidations() != 4 {
		t.Errorf("%+v", hour)
	}
	// rows 1 and 2, 3 and 4, 7 and 8, and at least one batch of the four repeats; not 5 and 6
	if hour.Batches < 4 || hour.Batches > 7 {
		t.Errorf("%d batches", hour.Batches)
	}
	points, err := store.Series(t.Context(), r.store.Sessions, 10, 1)
	if err != nil {
		t.Fatal(err)
	}
	by := store.Entities{}
	for _, p := range points {
		by.Merge(p.Entities)
	}
	if n := by["exact"]; len(by) != 1 || n.Rows != 3 || n.Within1s > 2 {
		t.Errorf("by entity: %+v", by)
	}
	if in, all := metric(t, r, `unstale_invalidations_in_time_total{within="10s"}`), metric(t, r, "unstale_invalidations_total"); in != 2 || all != 4 {
		t.Errorf("metrics: %v of %v", in, all)
	}
}

// Workers write how many rows wait, and how long.
func TestWhatWaitsIsWritten(t *testing.T) {
	t.Parallel()
	w := newWorld(t, countedMap)
	w.exec("INSERT INTO cache_outbox_control (name, who, reason, began_at) VALUES ('pause', 'a test', '', UTC_TIMESTAMP(6))")
	w.enqueue(outbox.Invalidation{Entity: "exact", ID: "1"}, outbox.Invalidation{Entity: "exact", ID: "2"})
	w.exec("UPDATE cache_outbox SET created_at = created_at - INTERVAL 1 MINUTE")
	w.worker(worker.Config{GaugeSchedule: "@every 1s"}).start(t)
	testenv.Eventually(t, "what waits is written", func() bool {
		return w.count("cache_outbox_minutes WHERE waiting = 2 AND oldest_ms BETWEEN 60000 AND 180000 AND entities IS NULL") > 0
	})
}

// While batches cannot be counted, rows are settled all the same, and the worker's record and its
// log have the reason.
func TestAWorkerThatMayNotCount(t *testing.T) {
	t.Parallel()
	w := newWorld(t, countedMap)
	w.exec("RENAME TABLE cache_outbox_minutes TO hidden")
	r := w.worker(worker.Config{})
	r.start(t)
	w.enqueue(outbox.Invalidation{Entity: "exact", ID: "1"})
	testenv.Eventually(t, "the row is settled", func() bool { return w.count("cache_outbox") == 0 })
	testenv.Eventually(t, "the record says why", func() bool {
		return w.count("cache_outbox_workers WHERE state = 'working' AND error LIKE 'invalidations are not counted: %cache_outbox_minutes%'") == 1
	})
	for range 2 {
		r.Fold(t.Context())
	}
	if n := r.log.count("invalidations are not counted; trying again"); n != 1 {
		t.Errorf("%d lines in the log", n)
	}
}
