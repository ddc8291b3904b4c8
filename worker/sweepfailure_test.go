package worker_test

import (
	"strings"
	"testing"

	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/outbox"
	"github.com/unstale/unstale/worker"
)

// Sweeps that the account may not make fail as a whole while rows are processed: a gauge, /readyz
// and status show it, with the reason.
func TestSweepsFailAsAWhole(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plainMap)
	server := w.onOwnRedis()
	setUser := func(rules ...any) {
		t.Helper()
		if err := w.redis.Do(t.Context(), append([]any{"acl", "setuser", "worker"}, rules...)...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	setUser("on", ">secret", "~*", "&*", "+@all", "-scan", "-sscan", "-renamenx")
	w.url = "redis://worker:secret@" + server.Addr()
	r := w.worker(worker.Config{})
	w.set("shop:list:7:p1", "shop:member")
	if err := w.redis.SAdd(t.Context(), "tag:x", "shop:member").Err(); err != nil {
		t.Fatal(err)
	}
	r.start(t)
	testenv.Eventually(t, "readiness", func() bool { return r.Health().Ready() == nil })
	if metric(t, r, "unstale_sweeping") != 1 {
		t.Error("sweeps are said to fail before any")
	}
	w.enqueue(outbox.Invalidation{Entity: "list", ID: "7"}, outbox.Invalidation{Entity: "tagged", ID: "x"})
	failure := func() *store.SweepFailure {
		st, err := r.store.Overview.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return st.SweepFailure
	}
	testenv.Eventually(t, "status says why", func() bool { return failure() != nil })
	if f := failure(); f == nil || f.Worker != "test" || !strings.Contains(f.Error, "grant the redis user +") {
		t.Errorf("status says %+v", f)
	}
	if n := metric(t, r, "unstale_sweeping"); n != 0 || metric(t, r, "unstale_up") != 1 {
		t.Errorf("unstale_sweeping is %v", n)
	}
	if err := r.Health().Ready(); err == nil || !strings.HasPrefix(err.Error(), "sweeps fail, rows go on: ") {
		t.Errorf("/readyz: %v", err)
	}
	setUser("+@all")
	testenv.Eventually(t, "the sweeps", func() bool { return len(w.left()) == 0 })
	testenv.Eventually(t, "the gauge", func() bool { return metric(t, r, "unstale_sweeping") == 1 })
	testenv.Eventually(t, "the end of the reason", func() bool { return failure() == nil })
	if err := r.Health().Ready(); err != nil {
		t.Errorf("/readyz: %v", err)
	}
}
