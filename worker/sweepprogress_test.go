package worker_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/worker"
)

// setsInStatus returns the progress of index sets in status once good accepts it.
func setsInStatus(t *testing.T, r *running, what string, good func(p *store.SweepProgress) bool) (last *store.SweepProgress) {
	t.Helper()
	testenv.Eventually(t, what, func() bool {
		st, err := r.store.Overview.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		last = st.Sets
		return last != nil && good(last)
	})
	return last
}

// Sets that are requested while others are taken count among those that wait, and there is no
// estimate of the end while requests keep arriving.
func TestSetsThatComeAreCounted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plainMap)
	// none waits for its second sweep
	w.writeMap(strings.Replace(plainMap, "version: 1", "version: 1\nlease: 1h", 1))
	slow := slowTaker{batches: &atomic.Int32{}, from: 2, goOn: make(chan struct{})}
	r := w.worker(worker.Config{}, func(real worker.Redis) worker.Redis { slow.Redis = real; return slow })
	w.requestSets(r.store, 600)
	r.start(t)
	setsInStatus(t, r, "the first total", func(p *store.SweepProgress) bool { return p.Scanned == 500 && p.Total == 600 })
	w.requestSets(r.store, 1000)
	p := setsInStatus(t, r, "the next total", func(p *store.SweepProgress) bool { return p.Total == 1600 })
	if p.Scanned != 500 || !p.Unsure {
		t.Errorf("%+v", p)
	}
	if left, ok := p.Left(); ok {
		t.Errorf("%v are said to be left", left)
	}
	setsInStatus(t, r, "an estimate when no more come", func(p *store.SweepProgress) bool { _, ok := p.Left(); return ok })
	close(slow.goOn)
	testenv.Eventually(t, "the sets", func() bool { return len(w.left()) == 0 })
}

// A heldSet is read one page far.
type heldSet struct {
	worker.Redis
	goOn chan struct{}
}

func (h heldSet) TakeSet(ctx context.Context, set string, id uint64, gone func([]string) error) (keyspace.TakenSet, error) {
	return h.Redis.TakeSet(ctx, set, id, func(members []string) error {
		if err := gone(members); err != nil {
			return err
		}
		select {
		case <-h.goOn:
		case <-ctx.Done():
		}
		return ctx.Err()
	})
}

// requestLarge fills an index set whose members are read in pages, and requests it.
func (w *world) requestLarge(s *store.Store, name string, members int) {
	w.t.Helper()
	names := make([]any, members)
	for i := range names {
		names[i] = fmt.Sprintf("%s:member:%d", name, i)
	}
	if err := w.redis.SAdd(w.t.Context(), name, names...).Err(); err != nil {
		w.t.Fatal(err)
	}
	if err := s.Sweeps.RequestSweeps(w.t.Context(), []store.Sweep{{Kind: store.SweepSet, Name: name}}); err != nil {
		w.t.Fatal(err)
	}
}
