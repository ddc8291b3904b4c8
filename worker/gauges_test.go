package worker_test

import (
	"math"
	"strings"
	"testing"

	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/worker"
)

const (
	unreadLine   = "level=WARN msg=\"gauges of a table cannot be read"
	readLine     = "level=INFO msg=\"gauges of a table are read again\" table=cache_outbox_dead"
	deadLettered = "INSERT INTO cache_outbox_dead (entity, entity_id, first_id, attempts, reason, error, map_version, created_at) " +
		"VALUES ('thing', '1', 1, 0, 'redis_refused', '', '', '2020-01-01')"
	deadLetterGauge = `unstale_rows_dead{reason="redis_refused"}`
)

// A table that cannot be read removes only its own gauges. It is logged once, and once when it can
// be read again.
func TestGaugesWithoutOneTable(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plainMap)
	r := w.worker(worker.Config{GaugeSchedule: "@every 1s"})
	if err := r.store.Actions.As("me").Pause(t.Context(), store.AnyPause, "", 0); err != nil { // so that the row waits
		t.Fatal(err)
	}
	w.enqueue(things(1)...)
	w.exec(deadLettered)
	w.exec("RENAME TABLE cache_outbox_dead TO hidden")
	r.start(t)
	testenv.Eventually(t, "the others are read", func() bool {
		return metric(t, r, "unstale_rows_waiting") == 1 && metric(t, r, "unstale_oldest_age_seconds") > 0
	})
	testenv.Eventually(t, "the log tells", func() bool { return r.log.count(unreadLine) == 1 })
	if !math.IsNaN(metric(t, r, deadLetterGauge)) || r.log.count("table=cache_outbox_dead error=") != 1 || r.log.count("outage") != 0 {
		t.Errorf("%s is %v", deadLetterGauge, metric(t, r, deadLetterGauge))
	}
	if _, err := r.store.Overview.Status(t.Context()); err == nil || !strings.Contains(err.Error(), "cache_outbox_dead") {
		t.Errorf("status: %v", err)
	}
	w.exec("RENAME TABLE hidden TO cache_outbox_dead")
	testenv.Eventually(t, "it is read again", func() bool { return metric(t, r, deadLetterGauge) == 1 && r.log.count(readLine) == 1 })
	if n := r.log.count(unreadLine); n != 1 {
		t.Errorf("the log tells of it %d times", n)
	}
}

// During an outage that the loop has logged, the gauges log nothing more, and have no old values.
func TestGaugesInAnOutage(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plainMap)
	w.exec("RENAME TABLE cache_outbox TO hidden")
	r := w.worker(worker.Config{GaugeSchedule: "@every 1s"})
	r.start(t)
	testenv.Eventually(t, "the loop tells", func() bool { return r.log.count("outage: rows wait") == 1 })
	for n := range 4 { // readings, each begun after the last one's figures were seen
		w.exec(deadLettered)
		testenv.Eventually(t, "a table is read", func() bool { return metric(t, r, deadLetterGauge) == float64(n+1) })
	}
	if v := metric(t, r, "unstale_rows_waiting"); !math.IsNaN(v) || r.log.count(unreadLine) != 0 {
		t.Errorf("unstale_rows_waiting is %v", v)
	}
	w.exec("RENAME TABLE hidden TO cache_outbox")
	testenv.Eventually(t, "it is read again", func() bool { return metric(t, r, "unstale_rows_waiting") == 0 })
	if n := r.log.count("gauges of a table"); n != 0 {
		t.Errorf("the log tells of gauges %d times", n)
	}
}
