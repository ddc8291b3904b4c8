//go:build soak

package worker_test

import (
	"testing"

	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/worker"
)

// The members of a large set are counted page by page, and there is no estimate of the remaining
// time.
func TestMembersOfALargeSetMove(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plainMap)
	held := heldSet{goOn: make(chan struct{})}
	r := w.worker(worker.Config{}, func(real worker.Redis) worker.Redis { held.Redis = real; return held })
	w.requestLarge(r.store, "tag:large", 5000)
	r.start(t)
	p := setsInStatus(t, r, "members", func(p *store.SweepProgress) bool { return p.Unlinked > 0 })
	if p.Scanned != 0 || p.Total != 1 || p.Unlinked >= 5000 || !p.Unsure {
		t.Errorf("%+v", p)
	}
	if n := metric(t, r, "unstale_sweep_keys_unlinked_total"); n != float64(p.Unlinked) {
		t.Errorf("the metric counts %v of %d members", n, p.Unlinked)
	}
	close(held.goOn)
	testenv.Eventually(t, "the set", func() bool { return len(w.left()) == 0 })
}
