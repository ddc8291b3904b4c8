package worker

import (
	"context"
	"errors"
	"time"

	"github.com/unstale/unstale/internal/store"
)

const (
	patternsOfAScan = 10_000
	bytesOfAScan    = 2 << 20 // of patterns
	setsOfABatch    = 500     // as many as one row of the journal takes
	bytesOfABatch   = 1 << 20 // of the names of sets
)

// sweepRounds are what the holder of the sweep lock does: index sets in batches, one after the other, and beside them
// scans for patterns. Neither waits for the other; they have the share of Redis' time together. One goroutine, that of
// run, owns them.
type sweepRounds struct {
	*engine
	watch *sweepWatch
	ended chan sweepOutcome
	kinds [2]*sweepKind
}

// A sweepKind is the sweeps of one kind.
type sweepKind struct {
	kind    store.SweepKind
	sweep   func(ctx context.Context, requests []store.Sweep) (done int, err error)
	running bool
	after   uint64    // the last request that was tried; in the next round all that still wait are tried again
	err     error     // of this round
	retry   time.Time // no round begins before
}

// A sweepOutcome is what came of a batch of sets, or of a scan.
type sweepOutcome struct {
	of   *sweepKind
	done int
	err  error
}

func (w *engine) newSweepRounds(watch *sweepWatch) *sweepRounds {
	s := &sweepRounds{engine: w, watch: watch, ended: make(chan sweepOutcome, 2)}
	s.kinds[0] = &sweepKind{kind: store.SweepPattern, sweep: s.sweepPatterns}
	s.kinds[1] = &sweepKind{kind: store.SweepSet, sweep: s.sweepSets}
	return s
}

// run goes on until nothing waits that can be carried out. What is requested meanwhile is begun at once, if nothing of
// its kind is under way, or afterwards: a request that is made after a key was passed must see it again.
func (s *sweepRounds) run() (done int, err error) {
	ctx, cancel := context.WithCancel(s.watch.ctx)
	defer cancel()
	ticker := time.NewTicker(tickInterval)
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
			if isLoss(o.err) {
				cancel() // all of it begins again
			}
		case <-s.sweepNow:
		case <-ticker.C:
		}
	}
}

// begin begins with the next requests of a kind, if there are any and nothing of the kind is under way.
func (s *sweepRounds) begin(ctx context.Context, k *sweepKind) {
	if k.running || ctx.Err() != nil || time.Now().Before(k.retry) {
		return
	}
	requests, err := s.next(ctx, k)
	if err != nil {
		s.end(sweepOutcome{of: k, err: err})
		return
	}
	if len(requests) == 0 && k.after > 0 { // the round is over
		if k.after = 0; k.err != nil {
			k.retry = time.Now().Add(tickInterval)
		}
		s.watch.over(k.kind)
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
		s.metrics.sweepSeconds.Observe(time.Since(began).Seconds())
		s.ended <- sweepOutcome{k, done, err}
	}()
}

// next are the requests of the next batch, or scan.
func (s *sweepRounds) next(ctx context.Context, k *sweepKind) ([]store.Sweep, error) {
	defer s.metrics.mysql.begin(callSweeps)()
	if k.kind == store.SweepPattern {
		return s.store.SweepsOf(ctx, k.kind, k.after, patternsOfAScan, bytesOfAScan)
	}
	return s.store.SweepsOf(ctx, k.kind, k.after, setsOfABatch, bytesOfABatch)
}

// end records what came of something. An error that is not one request's own ends the round.
func (s *sweepRounds) end(o sweepOutcome) {
	k := o.of
	k.running = false
	var some *someAway
	switch {
	case errors.As(o.err, &some): // the others go on
		k.err = o.err
	case o.err != nil:
		k.err = o.err
		k.after, k.retry = 0, time.Now().Add(tickInterval)
		s.watch.over(k.kind)
	}
	if k.err != nil && s.watch.ctx.Err() == nil && !isLoss(k.err) {
		s.sweepFailed(s.watch.ctx, k.err)
	}
}
