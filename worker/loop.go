package worker

import (
	"context"
	"errors"
	"time"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/store"
)

// tickInterval is how often the loop looks at what changes slowly: delayed rows, and whether Redis answers and still
// has what it acknowledged.
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
		r, err := w.attempt(ctx, &clock)
		w.presence.failed.Store(err != nil && !isLoss(err))
		switch {
		case ctx.Err() != nil:
			return
		case isLoss(err):
			w.pulse.stop(errHealing)
			w.health.turn()
			w.health.lost(err)
			w.progress.lost()
			clock.unsure = true
			timer.Reset(0)
			continue
		case err != nil:
			outages++
			w.pulse.stop(err)
			w.health.down(err)
			timer.Reset(outagePause(err, outages))
			continue
		}
		outages = 0
		wait := pace.next(time.Now(), r)
		switch {
		case clock.paused:
			w.health.turn()
		case clock.unsure:
			w.health.turn()
			wait = min(wait, clock.rest)
		default:
			w.pulse.well()
			w.health.up()
		}
		timer.Reset(wait)
	}
}

// A clock says when step looks at what changes slowly.
type clock struct {
	unsure     bool // whether Redis has what was settled: nothing is vouched for before heal has said so
	paused     bool // by an operator, as of the last tick
	likely     bool // rows wait, since a hint says so or the last batch found several: nobody need ask
	tick, heal time.Time
	rest       time.Duration // before the next slice of healing, while unsure
	retry      time.Time     // of a step, while a COMMIT hangs
}

// hungPause is how often the loop makes a step while a COMMIT hangs. Each step may leave one more
// session of the server behind, with the locks of its rows.
const hungPause = 30 * time.Second

// attempt makes a step. While a COMMIT hangs it fails, although the server answers: it then rarely
// makes a step, and waits for any write of the worker to commit.
func (w *engine) attempt(ctx context.Context, next *clock) (Result, error) {
	now := time.Now()
	if hung := w.store.Hung(); hung != nil && now.Before(next.retry) {
		return Result{}, hung
	}
	next.retry = now.Add(hungPause)
	r, err := w.step(ctx, next)
	if err == nil {
		err = w.store.Hung()
	}
	return r, err
}

// step carries one batch of the hot table, after a plain look whether it has rows, and once a second one of the delayed
// rows. While an operator has the workers paused it only looks whether that is over.
func (w *engine) step(ctx context.Context, next *clock) (Result, error) {
	now := time.Now()
	ticked := now.After(next.tick)
	var state store.PollState
	if ticked {
		var err error
		if state, err = w.pollState(ctx, next); err != nil {
			return Result{}, err
		}
	}
	if next.paused {
		if ticked {
			next.tick = now.Add(tickInterval)
		}
		return Result{}, nil
	}
	if w.lossSeen.Swap(false) {
		w.progress.lost()
		next.unsure = true
	}
	if next.unsure {
		w.pulse.stop(errHealing)
	}
	r, err := w.pollBatch(ctx, next.likely)
	for next.unsure && err == nil && r.Full && ctx.Err() == nil && time.Since(now) < healSlice { // as much time as for healing
		var more Result
		more, err = w.pollBatch(ctx, true)
		r.add(more)
		r.Full = more.Full
	}
	next.likely = r.Full || r.Claimed > 1
	if err == nil && !r.Full {
		w.presence.drained.Store(time.Now().UnixNano())
	}
	if err == nil && next.unsure { // after the rows: it may fail for one shard alone
		err = w.healSome(ctx, next)
	}
	if err == nil && ticked {
		err = w.tick(ctx, now, state, next, &r)
	}
	if err == nil {
		err = w.heavyTurn(ctx, &r)
	}
	return w.sweepsOf(r), err
}

// healSome heals for a while, and notes whether there is more to do.
func (w *engine) healSome(ctx context.Context, next *clock) error {
	state, err := w.heal(ctx)
	next.unsure, next.rest = state != healed, 0
	if state == healShared {
		next.rest = healPause
	}
	return err
}

// tick is the part of a step that comes once a second.
func (w *engine) tick(ctx context.Context, now time.Time, state store.PollState, next *clock, r *Result) error {
	if err := w.look(ctx, now, next); err != nil {
		return err
	}
	if state.Due {
		due, err := w.runBatch(ctx, turn{lane: w.due})
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

// sweepsOf wakes the sweeper if a batch requested sweeps.
func (w *engine) sweepsOf(r Result) Result {
	if r.Sweeps > 0 {
		notify(w.sweepNow)
	}
	return r
}

// pollState looks at what changes slowly in MySQL, a pause among it.
func (w *engine) pollState(ctx context.Context, next *clock) (store.PollState, error) {
	looking, cancel := context.WithTimeout(ctx, w.batchLimit)
	defer cancel()
	polled := w.metrics.mysql.begin(callPoll)
	state, err := w.store.PollState(looking)
	polled()
	if err != nil {
		return state, err
	}
	var p *store.Pause
	if state.Paused && !next.paused { // who and why, for the log
		if p, err = w.store.Paused(looking); err != nil {
			return state, err
		}
	}
	w.paused.Store(state.Paused)
	w.health.setPaused(state.Paused, p)
	if next.paused = state.Paused; next.paused {
		w.pulse.stop(errPaused)
	}
	return state, nil
}

// look asks whether Redis answers and still has what this worker had acknowledged, and every now and then whether it
// has what others had, who may have died before they could ask. A shard that is back is looked at when the workers have
// had time to write their beacons there.
func (w *engine) look(ctx context.Context, now time.Time, next *clock) (err error) {
	if now.After(next.heal) {
		next.heal = now.Add(jitter(healInterval, 0.1))
		err = w.healSome(ctx, next)
	} else {
		_, err = w.redis.CheckBeacon(ctx)
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

// pollBatch carries a batch of the hot table if it has rows, so that an empty poll is one plain statement without a
// transaction. Where rows are likely to wait it does not ask, which is a round trip less before they are claimed.
func (w *engine) pollBatch(ctx context.Context, likely bool) (Result, error) {
	if likely {
		return w.runBatch(ctx, turn{lane: w.hot})
	}
	looking, cancel := context.WithTimeout(ctx, w.batchLimit)
	defer cancel()
	polled := w.metrics.mysql.begin(callPoll)
	found, err := w.store.Waiting(looking)
	polled()
	if !found || err != nil {
		return Result{}, err
	}
	return w.runBatch(ctx, turn{lane: w.hot})
}

// notify leaves a signal unless one waits already.
func notify(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// isOutage reports whether err is an outage of Redis.
func isOutage(err error) bool {
	var outage *keyspace.Outage
	return errors.As(err, &outage)
}

// isLoss reports whether Redis has lost what it had acknowledged, which heal cures.
func isLoss(err error) bool {
	var loss *keyspace.Loss
	return errors.As(err, &loss)
}
