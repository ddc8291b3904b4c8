package worker

import (
	"context"
	"errors"
	"time"

	"github.com/unstale/unstale/internal/keyspace"
)

// sweepLoop carries out the sweeps that batches requested, outside any claim: at once when this worker requested some,
// and once a second for those of others.
func (w *engine) sweepLoop(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	outages := 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-w.sweepNow:
		}
		if w.paused.Load() || w.store.Hung() != nil {
			timer.Reset(jitter(tickInterval/4, 0.1))
			continue
		}
		n, err := w.sweep(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, errPaused): // not a fault
			timer.Reset(tickInterval)
			continue
		case errors.Is(err, errSweptElsewhere):
			w.health.sweptElsewhere()
			timer.Reset(jitter(tickInterval, 0.1))
			continue
		case isLoss(err):
			w.lossSeen.Store(true)
			notify(w.wake)
			timer.Reset(0) // the scan begins again
			continue
		case err != nil:
			outages++
			w.sweepFailed(ctx, err)
			timer.Reset(outagePause(err, outages))
			continue
		case n > 0:
			timer.Reset(0)
		default:
			timer.Reset(jitter(tickInterval, 0.1))
		}
		outages = 0
		if w.health.sweepDone() {
			if err := w.store.SweepsWork(ctx); err != nil {
				w.log.Debug("cannot note that sweeps work again", "error", err)
			}
		}
	}
}

// sweepFailed tells that sweeps fail as a whole, and "unstale status" why, if it is for Redis: MySQL cannot be told of
// its own outages.
func (w *engine) sweepFailed(ctx context.Context, err error) {
	w.health.sweepFailed(err)
	var redis *keyspace.Outage
	if !errors.As(err, &redis) {
		return
	}
	if err := w.store.NoteSweepFailure(ctx, err); err != nil {
		w.log.Debug("cannot note that sweeps fail", "error", err)
	}
}

var (
	// errPaused ends sweeps that an operator's pause finds under way. Their requests wait.
	errPaused = errors.New("all workers are paused")
	// errSweptElsewhere says that another worker sweeps.
	errSweptElsewhere = errors.New("another worker sweeps")
)

// sweep takes the sweep lock and carries out what waits. It returns how many requests it carried out. The error is
// errSweptElsewhere where another worker is at it.
func (w *engine) sweep(ctx context.Context) (done int, err error) {
	asked := w.metrics.mysql.begin(callSweeps)
	waiting, err := w.store.Sweeps(ctx, 1)
	asked()
	if err != nil || len(waiting) == 0 {
		return 0, err
	}
	lock, err := w.store.TrySweepLock(ctx) // one worker sweeps at a time
	if err != nil {
		return 0, err
	}
	if lock == nil {
		return 0, errSweptElsewhere
	}
	defer lock.Release()
	watch := w.watchSweep(ctx, lock)
	done, err = w.newSweepRounds(watch).run()
	if cause := watch.end(); cause != nil {
		err = cause
	}
	return done, err
}
