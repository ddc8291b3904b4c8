package worker

import (
	"context"
	"errors"
	"time"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/store"
)

// tickInterval is how often the loop looks at what changes slowly: delayed rows, and whether Redis answers and still has
// what it acknowledged.
const tickInterval = time.Second

// loop polls until ctx ends, at its pace. An outage is followed by a pause that a wake-up does not cut short.
func (w *engine) loop(ctx context.Context) {
	var (
		timer   = time.NewTimer(0)
		pace    = newPace(w.cfg)
		outages = 0
		clock   = clock{unsure: true}
	)
	defer timer.Stop()
	for {
		wake := w.wake
		if outages > 0 {
			wake = nil
		}
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-wake:
			clock.likely = true
			if wait := pace.hint(time.Now()); wait > 0 {
				timer.Reset(wait)
				continue
			}
		}
		pace.begin(time.Now())
		r, err := w.step(ctx, &clock)
		switch {
		case ctx.Err() != nil:
			return
		case isLoss(err):
			w.health.lost(err)
			w.progress.noticed = true
			clock.unsure = true
			timer.Reset(0)
			continue
		case err != nil:
			outages++
			w.health.down(err)
			timer.Reset(outagePause(err, outages))
			continue
		}
		outages = 0
		if clock.paused {
			w.health.turn()
		} else {
			w.health.up()
		}
		timer.Reset(pace.next(time.Now(), r))
	}
}

// A clock says when step looks at what changes slowly.
type clock struct {
	unsure     bool // whether Redis has what was settled: nothing may be settled before heal has said so
	paused     bool // by an operator, as of the last tick
	likely     bool // rows wait, since a hint says so or the last pass found several: nobody need ask
	tick, heal time.Time
}

// step does one pass over the hot table, after a plain look whether it has rows, and once a second one over the delayed
// rows. While an operator has the workers paused it only looks whether that is over.
func (w *engine) step(ctx context.Context, next *clock) (Result, error) {
	now := time.Now()
	ticked := now.After(next.tick)
	var signs store.Signs
	if ticked {
		var err error
		if signs, err = w.signs(ctx, next); err != nil {
			return Result{}, err
		}
	}
	if next.paused {
		if ticked {
			next.tick = now.Add(tickInterval)
		}
		return Result{}, nil
	}
	if w.lossSeen.Swap(false) || next.unsure {
		next.unsure = true
		if err := w.heal(ctx); err != nil {
			return Result{}, err
		}
		next.unsure = false
	}
	r, err := w.passIf(ctx, next.likely)
	next.likely = r.Full || r.Claimed > 1
	if err == nil && ticked {
		err = w.tick(ctx, now, signs, next, &r)
	}
	return w.sweepsOf(r), err
}

// tick is the part of a step that comes once a second.
func (w *engine) tick(ctx context.Context, now time.Time, signs store.Signs, next *clock, r *Result) error {
	if err := w.look(ctx, now, next); err != nil {
		return err
	}
	if signs.Due {
		due, err := w.pass(ctx, w.store.ClaimDue)
		if err != nil {
			return err
		}
		full := r.Full || due.Full
		r.add(due)
		r.Full = full
		if due.Full { // the next step goes on with them
			return nil
		}
	}
	next.tick = now.Add(tickInterval)
	return nil
}

// sweepsOf wakes the sweeper if a pass requested sweeps.
func (w *engine) sweepsOf(r Result) Result {
	if r.Sweeps > 0 {
		notify(w.sweepNow)
	}
	return r
}

// signs looks at what changes slowly in MySQL, a pause among it.
func (w *engine) signs(ctx context.Context, next *clock) (store.Signs, error) {
	looking, cancel := context.WithTimeout(ctx, w.passLimit)
	defer cancel()
	signs, err := w.store.Signs(looking)
	if err != nil {
		return signs, err
	}
	var p *store.Pause
	if signs.Paused && !next.paused { // who and why, for the log
		if p, err = w.store.Paused(looking); err != nil {
			return signs, err
		}
	}
	w.resting.Store(signs.Paused)
	w.health.rest(signs.Paused, p)
	next.paused = signs.Paused
	return signs, nil
}

// look asks whether Redis answers and still has what this worker had acknowledged, and every now and then whether it
// has what others had, who may have died before they could ask. A shard that is back is looked at when the workers
// have had time to write their beacons there.
func (w *engine) look(ctx context.Context, now time.Time, next *clock) (err error) {
	if now.After(next.heal) {
		next.heal = now.Add(jitter(healInterval, 0.1))
		err = w.heal(ctx)
	} else {
		_, err = w.redis.Beat(ctx)
	}
	if err != nil {
		return err
	}
	away := w.redis.Away()
	if w.health.away(away) && len(away) == 0 {
		next.heal = now.Add(2 * tickInterval)
	}
	return nil
}

// passIf runs a pass over the hot table if it has rows, so that an empty poll is one plain statement without a
// transaction. Where rows are likely to wait it doesn't ask, which is a round trip less before they are claimed.
func (w *engine) passIf(ctx context.Context, likely bool) (Result, error) {
	if likely {
		return w.pass(ctx, w.store.Claim)
	}
	looking, cancel := context.WithTimeout(ctx, w.passLimit)
	defer cancel()
	found, err := w.store.Waiting(looking)
	if !found || err != nil {
		return Result{}, err
	}
	return w.pass(ctx, w.store.Claim)
}

// notify leaves a signal unless one waits already.
func notify(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// isOutage says whether err is an outage of Redis.
func isOutage(err error) bool {
	var outage *keyspace.Outage
	return errors.As(err, &outage)
}

// isLoss says whether Redis has lost what it had acknowledged, which heal cures.
func isLoss(err error) bool {
	var loss *keyspace.Loss
	return errors.As(err, &loss)
}
