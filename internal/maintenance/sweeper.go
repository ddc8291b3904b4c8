package maintenance

import (
	"context"
	"errors"
	"time"

	"github.com/unstale/unstale/internal/sleep"
)

// A Sweeper carries out sweeps. Its methods are safe for concurrent use, except that only one of
// Run and Sweep may run at a time.
type Sweeper struct {
	cfg       SweepConfig
	requested chan struct{} // a batch requested sweeps; capacity 1, sent to without waiting
}

// NewSweeper returns a Sweeper.
func NewSweeper(cfg SweepConfig) *Sweeper {
	return &Sweeper{cfg: cfg, requested: make(chan struct{}, 1)}
}

// Requested wakes the Sweeper after a batch has requested sweeps. It does not block.
func (s *Sweeper) Requested() {
	select {
	case s.requested <- struct{}{}:
	default:
	}
}

// Run carries out requested sweeps until ctx ends. It starts requests of this worker immediately,
// and checks for requests of other workers once per second.
func (s *Sweeper) Run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	outages := 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-s.requested:
		}
		if s.cfg.Paused() || s.cfg.Hung() != nil {
			timer.Reset(sleep.Jitter(sweepPeriod/4, 0.1))
			continue
		}
		n, err := s.Sweep(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, ErrSweepPaused): // not a fault
			timer.Reset(sweepPeriod)
			continue
		case errors.Is(err, ErrElsewhere):
			s.cfg.Health.SweptElsewhere()
			timer.Reset(sleep.Jitter(sweepPeriod, 0.1))
			continue
		case IsLoss(err):
			s.cfg.Lost()
			timer.Reset(0) // the scan begins again
			continue
		case err != nil:
			outages++
			s.failed(ctx, err)
			timer.Reset(Pause(err, outages))
			continue
		case n > 0:
			timer.Reset(0)
		default:
			timer.Reset(sleep.Jitter(sweepPeriod, 0.1))
		}
		outages = 0
		if s.cfg.Health.SweepDone() {
			if err := s.cfg.Requests.SweepsWork(ctx); err != nil {
				s.cfg.Log.Debug("cannot delete the recorded failure of sweeps", "error", err)
			}
		}
	}
}

// failed reports that sweeps fail as a whole. If the cause is Redis, it also records it for
// "unstale status"; an outage of MySQL cannot be recorded in MySQL.
func (s *Sweeper) failed(ctx context.Context, err error) {
	s.cfg.Health.SweepFailed(err)
	if !IsRedis(err) {
		return
	}
	if err := s.cfg.Requests.NoteSweepFailure(ctx, err); err != nil {
		s.cfg.Log.Debug("cannot record the failure of sweeps", "error", err)
	}
}

// Sweep acquires the sweep lock and carries out the waiting requests. It returns how many it
// carried out. The error is ErrElsewhere if another worker sweeps.
func (s *Sweeper) Sweep(ctx context.Context) (done int, err error) {
	asked := s.cfg.Metrics.Call()
	waiting, err := s.cfg.Requests.Sweeps(ctx, 1)
	asked()
	if err != nil || len(waiting) == 0 {
		return 0, err
	}
	lock, err := s.cfg.Requests.TrySweepLock(ctx) // one worker sweeps at a time
	if err != nil {
		return 0, err
	}
	if lock == nil {
		return 0, ErrElsewhere
	}
	defer lock.Release()
	watch := newSweepWatch(ctx, &s.cfg, lock)
	done, err = newRounds(&s.cfg, s.requested, watch, s.failed).run()
	if cause := watch.end(); cause != nil {
		err = cause
	}
	return done, err
}
