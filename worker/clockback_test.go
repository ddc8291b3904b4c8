package worker_test

import (
	"database/sql"
	"testing"
	"time"

	"github.com/unstale/unstale/internal/clock"
	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/internal/storetest/schematest"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/worker"
)

// onClock replaces the MySQL of the world with a server whose clock the test sets.
func (w *world) onClock() *clock.File {
	w.t.Helper()
	m, file := testenv.OwnClock(w.t)
	var err error
	w.dsn = m.DSN("mysql")
	if w.db, err = sql.Open("mysql", w.dsn); err != nil {
		w.t.Fatal(err)
	}
	w.exec("CREATE DATABASE shop")
	_ = w.db.Close()
	w.dsn = m.DSN("shop")
	if w.db, err = sql.Open("mysql", w.dsn); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = w.db.Close() })
	schematest.Up(w.t, w.db)
	return file
}

// The database's clock is set back by an hour while a worker runs. Retries, patterns and second
// sweeps do not wait for an hour. Rows that the application scheduled and repeats keep their time.
func TestClockIsSetBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "version: 1\nlease: 1s\nentities: {thing: {keys: [\"x:{id}\"]}}\n")
	file := w.onClock()
	file.Set(time.Hour)
	w.set("x:1", "x:2", "l:1:a", "l:2:a")
	w.worker(worker.Config{}).start(t)
	testenv.Eventually(t, "the worker works", func() bool { return w.count("cache_outbox_workers WHERE state = 'working'") == 1 })
	w.exec(`INSERT INTO cache_outbox_delayed (entity, entity_id, due_at, first_id, attempts, reason, error, retry_us, repeated) VALUES
('thing', '1', UTC_TIMESTAMP(6) + INTERVAL 1 MINUTE, 5, 1, 'redis_refused', 'of this worker', 1000000, 0),
('thing', '2', UTC_TIMESTAMP(6) + INTERVAL 1 MINUTE, 0, 0, '', NULL, NULL, 0), ('thing', '3', UTC_TIMESTAMP(6) + INTERVAL 1 MINUTE, 6, 0, '', NULL, NULL, 1)`)
	w.exec(`INSERT INTO cache_outbox_sweeps (kind, name, requested_at, swept_at, not_before, attempts, error) VALUES
('pattern', 'l:1:*', UTC_TIMESTAMP(6), UTC_TIMESTAMP(6), UTC_TIMESTAMP(6) + INTERVAL 1 MINUTE, 0, NULL),
('pattern', 'l:2:*', UTC_TIMESTAMP(6), NULL, UTC_TIMESTAMP(6) + INTERVAL 1 MINUTE, 1, 'refused')`)
	w.exec("UPDATE cache_outbox_sweeps SET not_before = requested_at + INTERVAL 1 SECOND WHERE attempts = 0")
	file.Set(0)
	testenv.Eventually(t, "retries and sweeps", func() bool { return w.count("cache_outbox_sweeps") == 0 && w.count("cache_outbox_delayed") == 2 })
	if n := w.count("cache_outbox_delayed WHERE reason = '' AND due_at > UTC_TIMESTAMP(6) + INTERVAL 55 MINUTE"); n != 2 {
		t.Errorf("%d scheduled rows and repeats keep their time, wanted 2", n)
	}
	if left := w.left(); len(left) != 1 || left[0] != "x:2" {
		t.Errorf("left: %q", left)
	}
}

// Retries of workers that do not record their delay are due after the longest one.
func TestClockWasSetBackBeforeTheStart(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "version: 1\nentities: {thing: {keys: [\"x:{id}\"]}}\n")
	w.exec(`INSERT INTO cache_outbox_delayed (entity, entity_id, due_at, first_id, attempts, reason, error) VALUES
('thing', '1', UTC_TIMESTAMP(6) + INTERVAL 1 HOUR, 5, 1, 'redis_refused', 'x'), ('thing', '2', UTC_TIMESTAMP(6) + INTERVAL 1 MINUTE, 6, 1, 'redis_refused', 'x')`)
	q := store.NewQueue(w.worker(worker.Config{}).store.Sessions, nil)
	if n, err := q.AdvanceRetries(t.Context(), 6*time.Minute); n != 1 || err != nil {
		t.Errorf("advanced %d, %v", n, err)
	}
	if n := w.count("cache_outbox_delayed WHERE due_at BETWEEN UTC_TIMESTAMP(6) AND UTC_TIMESTAMP(6) + INTERVAL 6 MINUTE"); n != 2 {
		t.Errorf("%d retries are due within six minutes, wanted 2", n)
	}
	if n, err := q.AdvanceRetries(t.Context(), 6*time.Minute); n != 0 || err != nil {
		t.Errorf("again: advanced %d, %v", n, err)
	}
}
