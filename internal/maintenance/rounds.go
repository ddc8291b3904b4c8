package maintenance

import (
	"context"
	"errors"
	"time"

	"github.com/unstale/unstale/internal/store"
)

// rounds runs the sweeps of the process that holds the sweep lock: batches of index sets in
// sequence and, concurrently, scans for patterns. Neither waits for the other, but they share one
// limit on Redis's time. The goroutine of run owns the struct.
type rounds struct {
	cfg       *SweepConfig
	requested <-chan struct{}
	failed    func(context.Context, error)
	watch     *sweepWatch
	ended     chan outcome
	kinds     [2]*kind
}

// A kind is the sweeps of one kind.
type kind struct {
	of      store.SweepKind
	sweep   func(ctx context.Context, requests []store.Sweep) (done int, err error)
	running bool
	// the last request that was tried; the next round tries all that still wait
	after uint64
	err   error     // of this round
	retry time.Time // no round begins before
}

// An outcome is the result of a batch of sets or of a scan.
type outcome struct {
	of   *kind
	done int
	err  error
}

func newRounds(cfg *SweepConfig, requested <-chan struct{}, watch *sweepWatch, failed func(context.Context, error)) *rounds {
	s := &rounds{cfg: cfg, requested: requested, failed: failed, watch: watch, ended: make(chan outcome, 2)}
	do := &executor{cfg, watch}
	s.kinds[0] = &kind{of: store.SweepPattern, sweep: do.patterns}
	s.kinds[1] = &kind{of: store.SweepSet, sweep: do.sets}
	return s
}

// run sweeps until no request that can be carried out is left. A new request starts immediately, or
// after the running sweeps of its kind, since they may have passed its keys already.
func (s *rounds) run() (done int, err error) {
	ctx, cancel := context.WithCancel(s.watch.ctx)
	defer cancel()
	ticker := time.NewTicker(sweepPeriod)
	defer ticker.Stop()
	for {
		running := false
		for _, k := range s.kinds {
			s.begin(ctx, k)
			running = running || k.running
		}
		if !running {
			return done, errors.Join(s.kinds[0].err, s.kinds[1].err)
		}
		select {
		case o := <-s.ended:
			done += o.done
			s.end(o)
			if IsLoss(o.err) {
				cancel() // all sweeps begin again
			}
		case <-s.requested:
		case <-ticker.C:
		}
	}
}

// begin starts the next requests of a kind, if there are any and none of the kind are running.
func (s *rounds) begin(ctx context.Context, k *kind) {
	if k.running || ctx.Err() != nil || time.Now().Before(k.retry) {
		return
	}
	requests, err := s.next(ctx, k)
	if err != nil {
		s.end(outcome{of: k, err: err})
		return
	}
	if len(requests) == 0 && k.after > 0 { // the round has ended
		if k.after = 0; k.err != nil {
			k.retry = time.Now().Add(sweepPeriod)
		}
		s.watch.over(k.of)
		return
	}
	if k.after == 0 {
		k.err = nil
	}
	if len(requests) == 0 {
		return
	}
	k.running = true
	k.after = requests[len(requests)-1].ID
	go func() {
		began := time.Now()
		done, err := k.sweep(ctx, requests)
		s.cfg.Metrics.Took(time.Since(began))
		s.ended <- outcome{k, done, err}
	}()
}

// next returns the requests of the next batch or scan. It reads the lease after their ages and
// before they are carried out: whether this is their second sweep depends on both.
func (s *rounds) next(ctx context.Context, k *kind) ([]store.Sweep, error) {
	defer s.cfg.Metrics.Call()()
	limit, bytes := setsOfABatch, bytesOfABatch
	if k.of == store.SweepPattern {
		limit, bytes = patternsOfAScan, bytesOfAScan
	}
	requests, err := s.cfg.Requests.SweepsOf(ctx, k.of, k.after, limit, bytes)
	var lease time.Duration
	if err == nil && len(requests) > 0 {
		lease, err = s.cfg.Lease(ctx)
	}
	for i := range requests {
		requests[i].Lease = lease
	}
	return requests, err
}

// end records the outcome of a batch or a scan. Unless an error concerns single requests, it ends
// the round.
func (s *rounds) end(o outcome) {
	k := o.of
	k.running = false
	var some *someAway
	switch {
	case errors.As(o.err, &some): // the others continue
		k.err = o.err
	case o.err != nil:
		k.err = o.err
		k.after, k.retry = 0, time.Now().Add(sweepPeriod)
		s.watch.over(k.of)
	}
	if k.err != nil && s.watch.ctx.Err() == nil && !IsLoss(k.err) {
		s.failed(s.watch.ctx, k.err)
	}
}
