package worker_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/keyspace"
	"github.com/unstale/unstale/outbox"
	"github.com/unstale/unstale/worker"
)

// Sentence 14: a reader who loaded before the change and stores behind the pass' back is found by the settling pass,
// which is published again and leaves nothing to do.
func TestSweepsSettle(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	w.writeMap(strings.Replace(plainMap, "version: 1", "version: 1\nlease: 1s", 1))
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
	testenv.Eventually(t, "the first pass", func() bool { return w.count("cache_outbox_sweeps WHERE swept_at IS NOT NULL") == 2 })
	wantLeft(t, w)
	w.set("shop:list:7:p2", "shop:member:2") // by a reader whose lease has not run out
	add("shop:member:2")
	testenv.Eventually(t, "the settling pass", func() bool { return w.count("cache_outbox_sweeps") == 0 })
	wantLeft(t, w)
	keys, patterns := e.heard(4)
	if fmt.Sprint(keys) != "[shop:member:1 shop:member:2]" || fmt.Sprint(patterns) != "[shop:list:7:* shop:list:7:*]" {
		t.Errorf("heard %q, %q", keys, patterns)
	}
}

// A pass that begins when every lease from before the request has run out needs no second one.
func TestLateSweepIsSettled(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plainMap)
	r := w.worker(worker.Config{})
	if err := r.store.RequestSweeps(t.Context(), []outbox.Sweep{{Kind: outbox.SweepPattern, Name: "shop:list:7:*"}}); err != nil {
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

// A slow sweeper's passes report a progress and then wait.
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

// One worker sweeps at a time, and status shows how far it is. When the server takes the lead away the pass is given
// up, since another worker may be at it.
func TestSweepingIsOneWorkersWork(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plainMap)
	slow := slowSweeper{progress: keyspace.Progress{Scanned: 250, Total: 1000, Unlinked: 5}, goOn: make(chan struct{})}
	r := w.worker(worker.Config{}, func(real worker.Redis) worker.Redis { slow.Redis = real; return slow })
	w.set("shop:list:7:p1")
	w.enqueue(outbox.Invalidation{Entity: "list", ID: "7"})
	r.start(t)
	pass := func() *outbox.SweepPass {
		t.Helper()
		st, err := r.store.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return st.Pass
	}
	testenv.Eventually(t, "status shows the pass", func() bool { return pass() != nil })
	p := pass()
	if p.Worker != "test" || p.Patterns != 1 || p.Scanned != 250 || p.Total != 1000 || p.Unlinked != 5 {
		t.Errorf("%+v", p)
	}
	w.worker(worker.Config{}).drain(t)
	wantLeft(t, w, "shop:list:7:p1") // that worker did not sweep

	if n := testenv.KillTransactions(t, w.db); n == 0 {
		t.Fatal("nobody has the lead")
	}
	testenv.Eventually(t, "the pass is given up", func() bool { return r.log.count("lost the lead of sweeps") == 1 })
	close(slow.goOn)
	testenv.Eventually(t, "the sweep", func() bool { return len(w.left()) == 0 })
	testenv.Eventually(t, "its end in status", func() bool { return pass() == nil })
}

// Sentence 13: a pause ends a pass that is under way, whose requests wait.
func TestPauseEndsAPass(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plainMap)
	slow := slowSweeper{goOn: make(chan struct{})}
	r := w.worker(worker.Config{}, func(real worker.Redis) worker.Redis { slow.Redis = real; return slow })
	w.set("shop:list:7:p1")
	w.enqueue(outbox.Invalidation{Entity: "list", ID: "7"})
	r.start(t)
	pass := func() bool {
		st, err := r.store.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return st.Pass != nil
	}
	testenv.Eventually(t, "the pass", pass)
	if err := r.store.Pause(t.Context(), "somebody", "", 0); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the end of the pass", func() bool { return !pass() })
	wantLeft(t, w, "shop:list:7:p1")
	close(slow.goOn)
	if _, err := r.store.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the sweep", func() bool { return len(w.left()) == 0 })
	if r.log.count("sweeps wait") != 0 {
		t.Error("a pause is taken for a fault")
	}
}

// A set that meets an outage, as one in a slot that is moving does, keeps no other waiting, nor the patterns.
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

func (m movingSet) TakeSet(ctx context.Context, set string, id uint64, gone func([]string) error) (keyspace.TakenSet, error) {
	if set == m.name {
		return keyspace.TakenSet{}, &keyspace.Outage{State: keyspace.StateMoving, Err: fmt.Errorf("ASK")}
	}
	return m.Redis.TakeSet(ctx, set, id, gone)
}
