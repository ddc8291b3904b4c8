package worker_test

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/maintenance"
	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/outbox"
	"github.com/unstale/unstale/worker"
)

// Sentence 14: the second sweep finds a value that a reader loaded before the change and stores
// after the first sweep. It is published again and leaves nothing to do.
func TestSweepsSettle(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	w.writeMap(strings.Replace(plainMap, "version: 1", "version: 1\nlease: 1h", 1))
	r := w.worker(worker.Config{})
	e := w.listen()
	w.set("shop:list:7:p1", "shop:member:1")
	add := func(member string) {
		t.Helper()
		if err := w.redis.SAdd(t.Context(), "tag:x", member).Err(); err != nil {
			t.Fatal(err)
		}
	}
	add("shop:member:1")
	w.enqueue(outbox.Invalidation{Entity: "list", ID: "7"}, outbox.Invalidation{Entity: "tagged", ID: "x"})
	r.start(t)
	testenv.Eventually(t, "the first scan", func() bool { return w.count("cache_outbox_sweeps WHERE swept_at IS NOT NULL") == 2 })
	wantLeft(t, w)
	w.set("shop:list:7:p2", "shop:member:2") // by a reader whose lease has not run out
	add("shop:member:2")
	w.exec("UPDATE cache_outbox_sweeps SET requested_at = requested_at - INTERVAL 1 HOUR, not_before = requested_at")
	testenv.Eventually(t, "the settling sweep", func() bool { return w.count("cache_outbox_sweeps") == 0 })
	wantLeft(t, w)
	keys, patterns := e.heard(4)
	if fmt.Sprint(keys) != "[shop:member:1 shop:member:2]" || fmt.Sprint(patterns) != "[shop:list:7:* shop:list:7:*]" {
		t.Errorf("heard %q, %q", keys, patterns)
	}
}

// Sentence 14: the second sweep also waits for a lease that a reader took during the hold time,
// since its replica may have lagged until then.
func TestSweepsSettleAfterTheHold(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plainMap)
	r := w.worker(worker.Config{})
	request := store.Sweep{Kind: store.SweepPattern, Name: "shop:list:7:*", HoldMillis: 15_000}
	if err := r.store.Sweeps.RequestSweeps(t.Context(), []store.Sweep{request}); err != nil {
		t.Fatal(err)
	}
	const backdate = "UPDATE cache_outbox_sweeps SET requested_at = requested_at - INTERVAL ? SECOND, not_before = requested_at"
	w.exec(backdate, 16) // longer than the lease, and than the hold
	r.drain(t)
	if n := w.count("cache_outbox_sweeps WHERE TIMESTAMPDIFF(MICROSECOND, requested_at, not_before) = 25000000"); n != 1 {
		t.Errorf("%d sweeps wait for lease and hold", n)
	}
	w.exec(backdate, 9)
	r.drain(t)
	if n := w.count("cache_outbox_sweeps"); n != 0 {
		t.Errorf("%d sweeps wait after lease and hold", n)
	}
}

// A scan that begins when every lease from before the request has run out needs no second one.
func TestLateSweepIsSettled(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plainMap)
	r := w.worker(worker.Config{})
	if err := r.store.Sweeps.RequestSweeps(t.Context(), []store.Sweep{{Kind: store.SweepPattern, Name: "shop:list:7:*"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.db.Exec("UPDATE cache_outbox_sweeps SET requested_at = requested_at - INTERVAL 11 SECOND"); err != nil {
		t.Fatal(err)
	}
	w.set("shop:list:7:p1")
	r.drain(t)
	wantLeft(t, w)
	if n := w.count("cache_outbox_sweeps"); n != 0 {
		t.Errorf("%d sweeps wait", n)
	}
}

// A slow sweeper's scans report a progress and then wait.
type slowSweeper struct {
	worker.Redis
	progress keyspace.Progress
	goOn     chan struct{}
}

func (s slowSweeper) Sweep(ctx context.Context, patterns []string, watch func(keyspace.Progress)) (keyspace.SweepResult, error) {
	watch(s.progress)
	select {
	case <-s.goOn:
	case <-ctx.Done():
		return keyspace.SweepResult{}, ctx.Err()
	}
	return s.Redis.Sweep(ctx, patterns, watch)
}

// One worker sweeps at a time, and status shows how far it is. When the server takes the sweep lock
// away the scan is given up, since another worker may be at it.
func TestSweepingIsOneWorkersWork(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plainMap)
	slow := slowSweeper{progress: keyspace.Progress{Scanned: 250, Total: 1000, Unlinked: 5}, goOn: make(chan struct{})}
	r := w.worker(worker.Config{}, func(real worker.Redis) worker.Redis { slow.Redis = real; return slow })
	w.set("shop:list:7:p1")
	w.enqueue(outbox.Invalidation{Entity: "list", ID: "7"})
	r.start(t)
	progress := func() *store.SweepProgress {
		t.Helper()
		st, err := r.store.Overview.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return st.Scan
	}
	testenv.Eventually(t, "status shows the scan", func() bool { return progress() != nil })
	p := progress()
	if p.Worker != "test" || p.Patterns != 1 || p.Scanned != 250 || p.Total != 1000 || p.Unlinked != 5 {
		t.Errorf("%+v", p)
	}
	const done, size = `unstale_sweep_done{kind="pattern"}`, `unstale_sweep_size{kind="pattern"}`
	if metric(t, r, done) != 250 || metric(t, r, size) != 1000 {
		t.Errorf("%v of %v", metric(t, r, done), metric(t, r, size))
	}
	w.worker(worker.Config{}).drain(t)
	wantLeft(t, w, "shop:list:7:p1") // that worker did not sweep

	if n := testenv.KillTransactions(t, w.db); n == 0 {
		t.Fatal("nobody has the sweep lock")
	}
	testenv.Eventually(t, "the scan is given up", func() bool { return r.log.count("lost the sweep lock") == 1 })
	close(slow.goOn)
	testenv.Eventually(t, "the sweep", func() bool { return len(w.left()) == 0 })
	testenv.Eventually(t, "its end in status", func() bool { return progress() == nil })
	if metric(t, r, done) != 0 || metric(t, r, size) != 0 {
		t.Errorf("%v of %v after the end", metric(t, r, done), metric(t, r, size))
	}
}

// Sentence 13: a pause ends a scan that is under way, whose requests wait.
func TestPauseEndsAScan(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plainMap)
	slow := slowSweeper{goOn: make(chan struct{})}
	r := w.worker(worker.Config{}, func(real worker.Redis) worker.Redis { slow.Redis = real; return slow })
	w.set("shop:list:7:p1")
	w.enqueue(outbox.Invalidation{Entity: "list", ID: "7"})
	r.start(t)
	progress := func() bool {
		st, err := r.store.Overview.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return st.Scan != nil
	}
	testenv.Eventually(t, "the scan", progress)
	if err := r.store.Actions.As("somebody").Pause(t.Context(), store.AnyPause, "", 0); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the end of the scan", func() bool { return !progress() })
	wantLeft(t, w, "shop:list:7:p1")
	close(slow.goOn)
	if _, err := r.store.Actions.Resume(t.Context(), store.AnyPause); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the sweep", func() bool { return len(w.left()) == 0 })
	if r.log.count("sweeps wait") != 0 {
		t.Error("a pause is taken for a fault")
	}
}

// A set that meets an outage, as one in a slot that is moving does, keeps no other waiting, nor the
// patterns.
func TestOneSetIsInTrouble(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plainMap)
	r := w.worker(worker.Config{}, func(real worker.Redis) worker.Redis { return movingSet{real, "tag:moving"} })
	w.set("shop:list:7:p1", "shop:member")
	for _, set := range []string{"tag:moving", "tag:x"} {
		if err := w.redis.SAdd(t.Context(), set, "shop:member").Err(); err != nil {
			t.Fatal(err)
		}
	}
	w.enqueue(outbox.Invalidation{Entity: "tagged", ID: "moving"}, outbox.Invalidation{Entity: "tagged", ID: "x"}, outbox.Invalidation{Entity: "list", ID: "7"})
	if _, err := r.Drain(t.Context()); err == nil || !strings.Contains(err.Error(), "tag:moving") {
		t.Errorf("drain: %v", err)
	}
	wantLeft(t, w, "tag:moving")
	if n := w.count("cache_outbox_sweeps WHERE swept_at IS NULL"); n != 1 {
		t.Errorf("%d sweeps wait", n)
	}
}

// A movingSet is in a slot that is on its way.
type movingSet struct {
	worker.Redis
	name string
}

func (m movingSet) TakeSets(ctx context.Context, requests []keyspace.SetRequest, gone func([]string) error) (keyspace.TakenSets, error) {
	var others []keyspace.SetRequest
	for _, r := range requests {
		if r.Set != m.name {
			others = append(others, r)
		}
	}
	taken, err := m.Redis.TakeSets(ctx, others, gone)
	for i, r := range requests {
		if r.Set == m.name {
			moving := keyspace.SetResult{Err: &keyspace.Outage{State: keyspace.StateMoving, Err: fmt.Errorf("ASK")}}
			taken.Sets = slices.Insert(taken.Sets, i, moving)
		}
	}
	return taken, err
}

// A slowTaker's batches of sets are counted, and wait if there is something to wait for.
type slowTaker struct {
	worker.Redis
	batches *atomic.Int32
	from    int32 // the first batch that waits
	goOn    chan struct{}
}

func (s slowTaker) TakeSets(ctx context.Context, requests []keyspace.SetRequest, gone func([]string) error) (keyspace.TakenSets, error) {
	if s.batches.Add(1) >= s.from {
		select {
		case <-s.goOn:
		case <-ctx.Done():
			return keyspace.TakenSets{}, &keyspace.Outage{State: keyspace.StateCanceled, Err: ctx.Err()}
		}
	}
	return s.Redis.TakeSets(ctx, requests, gone)
}

// request asks for index sets with a member each.
func (w *world) requestSets(s *store.Store, n int) {
	w.t.Helper()
	pipe := w.redis.Pipeline()
	requests := make([]store.Sweep, n)
	for i := range requests {
		requests[i] = store.Sweep{Kind: store.SweepSet, Name: fmt.Sprintf("tag:%d", i)}
		pipe.Set(w.t.Context(), fmt.Sprintf("member:%d", i), "old", 0)
		pipe.SAdd(w.t.Context(), requests[i].Name, fmt.Sprintf("member:%d", i))
	}
	if _, err := pipe.Exec(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	if err := s.Sweeps.RequestSweeps(w.t.Context(), requests); err != nil {
		w.t.Fatal(err)
	}
}

// Sentence 14: sets are taken in batches, each of which is one row of the journal.
func TestSetsComeInBatches(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plainMap)
	r := w.worker(worker.Config{})
	w.requestSets(r.store, 1200)
	r.drain(t)
	wantLeft(t, w)
	if n := w.count("cache_outbox_journal"); n != 3 {
		t.Errorf("%d rows in the journal for 1,200 sets", n)
	}
	if n := w.count("cache_outbox_sweeps WHERE swept_at IS NOT NULL"); n != 1200 {
		t.Errorf("%d sets wait for their settling sweep", n)
	}
}

// holdFirstSweep holds the oldest request, so that its batch cannot be recorded.
func (w *world) holdFirstSweep() (release func()) {
	w.t.Helper()
	tx, err := w.db.BeginTx(w.t.Context(), &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = tx.Rollback() }) // it has ended before, unless the test fails
	if _, err := tx.Exec("SELECT id FROM cache_outbox_sweeps ORDER BY id LIMIT 1 FOR UPDATE"); err != nil {
		w.t.Fatal(err)
	}
	return func() { _ = tx.Rollback() }
}

// While MySQL records a batch of sets, the next ones are taken.
func TestSetsDoNotWaitForMySQL(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plainMap)
	// none waits for its second sweep
	w.writeMap(strings.Replace(plainMap, "version: 1", "version: 1\nlease: 1h", 1))
	r := w.worker(worker.Config{})
	w.requestSets(r.store, 1500)
	release := w.holdFirstSweep()
	r.start(t)
	testenv.Eventually(t, "the other batches", func() bool { return w.count("cache_outbox_sweeps WHERE swept_at IS NOT NULL") == 1000 })
	wantLeft(t, w)
	release()
	testenv.Eventually(t, "the first batch", func() bool { return w.count("cache_outbox_sweeps WHERE swept_at IS NOT NULL") == 1500 })
	if n := w.count("cache_outbox_journal WHERE beat > 0"); n != 3 {
		t.Errorf("%d rows in the journal", n)
	}
}

// A lossyTaker's second batch of sets finds a Loss.
type lossyTaker struct {
	worker.Redis
	batches *atomic.Int32
}

func (l lossyTaker) TakeSets(ctx context.Context, requests []keyspace.SetRequest, gone func([]string) error) (keyspace.TakenSets, error) {
	if l.batches.Add(1) == 2 {
		return keyspace.TakenSets{}, &keyspace.Loss{}
	}
	return l.Redis.TakeSets(ctx, requests, gone)
}

// A Loss ends the batch that MySQL records meanwhile, and is reported nevertheless.
func TestALossDuringAnotherBatch(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plainMap)
	r := w.worker(worker.Config{}, func(real worker.Redis) worker.Redis { return lossyTaker{real, &atomic.Int32{}} })
	w.requestSets(r.store, 600)
	release := w.holdFirstSweep()
	if _, err := r.Drain(t.Context()); !maintenance.IsLoss(err) {
		t.Errorf("drain: %v", err)
	}
	if n := w.count("cache_outbox_sweeps WHERE swept_at IS NULL"); n != 600 {
		t.Errorf("%d sweeps wait", n)
	}
	release()
	r.drain(t)
	wantLeft(t, w)
	if n := w.count("cache_outbox_sweeps WHERE swept_at IS NOT NULL"); n != 600 {
		t.Errorf("%d sets were swept", n)
	}
}

// Sentence 14: a pattern does not wait behind sets, whose progress status shows, nor sets behind a
// scan.
func TestAPatternBesideSets(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plainMap)
	// no second sweep comes between
	w.writeMap(strings.Replace(plainMap, "version: 1", "version: 1\nlease: 1h", 1))
	slow := slowTaker{batches: &atomic.Int32{}, from: 2, goOn: make(chan struct{})}
	r := w.worker(worker.Config{}, func(real worker.Redis) worker.Redis { slow.Redis = real; return slow })
	w.requestSets(r.store, 600)
	r.start(t)
	testenv.Eventually(t, "the second batch", func() bool { return slow.batches.Load() == 2 })
	var sets *store.SweepProgress
	testenv.Eventually(t, "status shows the sets", func() bool {
		st, err := r.store.Overview.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		sets = st.Sets
		// A count while the first batch ends may take its sets for gone; the next one does not.
		return sets != nil && sets.Scanned == 500 && sets.Total == 600
	})
	if sets.Worker != "test" || sets.Unlinked != 500 {
		t.Errorf("%+v", sets)
	}
	w.set("shop:list:7:p1")
	w.enqueue(outbox.Invalidation{Entity: "list", ID: "7"})
	testenv.Eventually(t, "the scan", func() bool { return w.redis.Exists(t.Context(), "shop:list:7:p1").Val() == 0 })
	if n := len(w.left()); n != 200 {
		t.Errorf("%d names are left of the second batch, want 100 sets and their members", n)
	}
	close(slow.goOn)
	testenv.Eventually(t, "the sets", func() bool { return len(w.left()) == 0 })
}

// A refusal of Redis is logged once and not every minute, and does not affect readiness.
func TestARefusedSweepIsToldOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plainMap)
	w.writeMap(strings.Replace(plainMap, "version: 1", "version: 1\nlease: 1ms", 1))
	r := w.worker(worker.Config{})
	if err := w.redis.Set(t.Context(), "tag:x", "a text", 0).Err(); err != nil {
		t.Fatal(err)
	}
	w.enqueue(outbox.Invalidation{Entity: "tagged", ID: "x"})
	for range 3 {
		r.drain(t)
		w.exec("UPDATE cache_outbox_sweeps SET not_before = requested_at")
	}
	if n := w.count("cache_outbox_sweeps WHERE attempts = 3"); n != 1 {
		t.Errorf("%d sweeps were refused three times", n)
	}
	if n := r.log.count("level=WARN msg=\"redis refuses sweeps"); n != 1 || r.log.count("level=ERROR") != 0 {
		t.Errorf("the log tells of it %d times", n)
	}
	running := w.worker(worker.Config{GaugeSchedule: "@every 1s"})
	stop := running.start(t)
	testenv.Eventually(t, "the gauge tells", func() bool { return metric(t, running, "unstale_sweeps_refused") == 1 })
	testenv.Eventually(t, "readiness", func() bool { return running.Health().Ready() == nil })
	stop()
	if err := w.redis.Unlink(t.Context(), "tag:x").Err(); err != nil {
		t.Fatal(err)
	}
	w.exec("UPDATE cache_outbox_sweeps SET not_before = requested_at")
	r.drain(t)
	if n := r.log.count("redis takes sweeps that it had refused"); n != 1 {
		t.Errorf("the log tells %d times that it is over", n)
	}
}
