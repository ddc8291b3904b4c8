package worker

import (
	"context"
	"fmt"
	"time"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/maintenance"
	"github.com/unstale/unstale/internal/sleep"
	"github.com/unstale/unstale/internal/store"
)

// tickInterval is how often the loop looks at what changes slowly: delayed rows, and whether Redis
// answers and still has what it acknowledged.
const tickInterval = time.Second

// A loop processes rows. One goroutine, that of run, owns it.
type loop struct {
	*base
	limit    time.Duration // of one poll
	lanes    *lanes
	healer   *maintenance.Healer
	sweeper  *maintenance.Sweeper
	database *databaseStatus
}

// run polls until ctx ends, at its pace. An outage is followed by a pause that a wake-up does not
// cut short.
func (l *loop) run(ctx context.Context) {
	var (
		timer     = time.NewTimer(0)
		pace      = newPace(l.cfg)
		outages   = 0
		contended = 0
		clock     = clock{unsure: true, unused: true}
	)
	defer timer.Stop()
	for {
		wake := l.State.Woken()
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
		if clock.unused || outages > 0 {
			l.database.first(ctx)
			clock.unused = false
		}
		clock.open = pace.beginStep(time.Now())
		r, err := l.attempt(ctx, &clock)
		l.State.Loop.StepEnded(err != nil && !maintenance.IsLoss(err))
		switch {
		case ctx.Err() != nil:
			return
		case maintenance.IsLoss(err):
			l.State.Loop.Withhold(maintenance.ErrHealing)
			l.State.Turn()
			l.State.LogLoss(err)
			l.healer.Lost()
			clock.unsure = true
			timer.Reset(0)
			continue
		case l.State.Contended(err, contended):
			contended++
			timer.Reset(maintenance.Pause(err, contended))
			continue
		case err != nil:
			outages++
			l.State.Loop.Withhold(err)
			l.State.Down(err)
			timer.Reset(maintenance.Pause(err, outages))
			continue
		}
		outages, contended = 0, 0
		wait := pace.next(time.Now(), r)
		switch {
		case clock.paused:
		case clock.unsure: // rows are processed, and only heartbeats wait for the healing
			wait = min(wait, clock.rest)
		default:
			l.State.Loop.Polled()
		}
		l.State.Up(clock.paused)
		timer.Reset(wait)
	}
}

// A clock holds when step checks state that changes slowly.
type clock struct {
	unused bool // no step was made so far
	// whether Redis still has the settled writes is unknown: no heartbeat before heal has checked
	unsure bool
	paused bool // by an operator, as of the last tick
	// rows wait, by a hint or by the last batch: no need to ask
	likely     bool
	open       time.Time // see pace.beginStep
	tick, heal time.Time
	rest       time.Duration // before the next slice of healing, while unsure
	retry      time.Time     // of a step, while a COMMIT hangs
}

// hungPause is how often the loop makes a step while a COMMIT hangs. Each step may leave one more
// session of the server behind, with the locks of its rows.
const hungPause = 30 * time.Second

// attempt makes a step. While a COMMIT hangs it fails, although the server answers: it then rarely
// makes a step, and waits for any write of the worker to commit. Other faults of that time do not
// replace the error, except that the server does not answer reads either.
func (l *loop) attempt(ctx context.Context, next *clock) (Result, error) {
	hung := l.Store.Sessions.Hung()
	if hung != nil {
		if _, err := l.pollState(ctx, next); err != nil {
			return Result{}, err
		}
		if time.Now().Before(next.retry) {
			return Result{}, hung
		}
	}
	next.retry = time.Now().Add(hungPause)
	r, err := l.step(ctx, next)
	if still := l.Store.Sessions.Hung(); still != nil && !maintenance.IsLoss(err) && (err == nil || hung != nil) {
		err = still
	}
	return r, err
}

// step processes one batch of cache_outbox, after a plain query whether it has rows, and once per
// second one of the delayed rows. While an operator has paused the workers it only checks for the
// end of the pause.
func (l *loop) step(ctx context.Context, next *clock) (Result, error) {
	now := time.Now()
	ticked := now.After(next.tick)
	var state store.PollState
	if ticked {
		var err error
		if state, err = l.pollState(ctx, next); err != nil {
			return Result{}, err
		}
	}
	if next.paused {
		if ticked {
			next.tick = now.Add(tickInterval)
		}
		return Result{}, nil
	}
	if l.State.TakeLoss() {
		l.healer.Lost()
		next.unsure = true
	}
	if next.unsure && !l.State.Loop.Withholds(maintenance.ErrHealing) { // or for a reason that says more
		l.State.Loop.Withhold(maintenance.ErrHealing)
	}
	r, err := l.pollBatch(ctx, next)
	// as much time as for healing
	for next.unsure && err == nil && r.Full && ctx.Err() == nil && time.Since(now) < maintenance.Slice {
		var more Result
		more, err = l.lanes.light(ctx, l.lanes.hot)
		r.merge(more)
		r.Full = more.Full
	}
	next.likely = r.Full || r.Claimed > 1
	if err == nil && !r.Full {
		l.State.Loop.Drained()
	}
	if err == nil && next.unsure { // after the rows: it may fail for one shard alone
		err = l.healSome(ctx, next)
	}
	if err == nil && ticked {
		err = l.tick(ctx, now, state, next, &r)
	}
	if err == nil {
		err = l.lanes.heavyTurn(ctx, &r)
	}
	if r.Sweeps > 0 {
		l.sweeper.Requested()
	}
	return r, err
}

// healSome heals for a while, and records whether there is more to do.
func (l *loop) healSome(ctx context.Context, next *clock) error {
	state, err := l.healer.Step(ctx)
	next.unsure, next.rest = state != maintenance.Healed, 0
	if state == maintenance.Busy {
		next.rest = maintenance.HealPause
	}
	return err
}

// tick does the part of a step that runs once per second.
func (l *loop) tick(ctx context.Context, now time.Time, state store.PollState, next *clock, r *Result) error {
	if err := l.checkRedis(ctx, now, next); err != nil {
		return err
	}
	if state.Due {
		due, err := l.lanes.light(ctx, l.lanes.due)
		if err != nil {
			return err
		}
		r.Full = r.Full || due.Full
		r.merge(due)
		if due.Full { // the next step continues with them
			return nil
		}
	}
	next.tick = now.Add(tickInterval)
	return nil
}

// pollState looks at what changes slowly in MySQL, a pause among it.
func (l *loop) pollState(ctx context.Context, next *clock) (store.PollState, error) {
	looking, cancel := context.WithTimeout(ctx, l.limit)
	defer cancel()
	polled := l.metrics.mysql.timeCall(callPoll)
	state, err := l.Store.Queue.PollState(looking)
	polled()
	if err != nil {
		l.Store.Sessions.NoReply(err)
		return state, err
	}
	var p *store.Pause
	if state.Paused && !next.paused { // who and why, for the log
		if p, err = l.Store.Actions.Paused(looking); err != nil {
			return state, err
		}
	}
	l.State.SetPaused(state.Paused, p)
	if next.paused = state.Paused; next.paused {
		l.State.Loop.Withhold(maintenance.ErrPaused)
	}
	return state, nil
}

// checkRedis checks whether Redis answers and still has the acknowledged writes of this worker, and
// periodically, or at once if slots have moved, those of other workers, which may have died before
// they could check. It checks a shard that is available again only after the workers had time to
// write their beacons there.
func (l *loop) checkRedis(ctx context.Context, now time.Time, next *clock) (err error) {
	if now.After(next.heal) || l.Redis.Unconfirmed() {
		next.heal = now.Add(sleep.Jitter(maintenance.Interval, 0.1))
		err = l.healSome(ctx, next)
	} else {
		_, err = l.Redis.CheckBeacon(ctx)
	}
	if err != nil {
		return err
	}
	away := l.Redis.Away()
	if l.State.SetAway(away) && len(away) == 0 {
		next.heal = now.Add(2 * tickInterval)
	}
	return nil
}

// pollBatch processes a batch of cache_outbox if it has rows. So an empty poll is one plain
// statement without a transaction. If rows are likely, it skips that query, which saves a round
// trip before the claim.
func (l *loop) pollBatch(ctx context.Context, next *clock) (Result, error) {
	if next.likely && !next.unsure && l.lanes.nextHeavy() == nil {
		return l.lanes.hints(ctx, next.open)
	}
	if next.likely { // healing and heavy rows do not wait for hints
		return l.lanes.light(ctx, l.lanes.hot)
	}
	looking, cancel := context.WithTimeout(ctx, l.limit)
	defer cancel()
	polled := l.metrics.mysql.timeCall(callPoll)
	found, err := l.Store.Queue.Waiting(looking)
	polled()
	if !found || err != nil {
		return Result{}, err
	}
	return l.lanes.light(ctx, l.lanes.hot)
}

// drain processes what is there now, due rows included, and heals before that.
func (l *loop) drain(ctx context.Context) (Result, error) {
	var total Result
	pause, err := l.Store.Actions.Paused(ctx)
	if err == nil {
		_, err = l.Store.Queue.PollState(ctx) // for the database's clock
	}
	if err != nil {
		return total, err
	}
	if pause != nil {
		return total, fmt.Errorf("all workers are paused %s; see 'unstale resume'", pause)
	}
	l.State.SetPaused(false, nil)
	if err := l.healer.Run(ctx); err != nil {
		return total, err
	}
	for _, next := range []*lane{l.lanes.hot, l.lanes.due} {
		for {
			if ctx.Err() != nil {
				return total, ctx.Err()
			}
			r, err := l.lanes.light(ctx, next)
			if err == nil {
				err = l.lanes.heavyTurn(ctx, &r)
			}
			total.merge(r)
			if err != nil {
				return total, err
			}
			if r.Claimed == 0 && !r.Full {
				break
			}
		}
	}
	return total, nil
}

// clockSchedule is how often a worker checks whether the database's clock was set back.
const clockSchedule = "@every 5s"

// A clockBack makes retries and sweeps due in time after the database's clock was set back. Not
// safe for concurrent use: cron runs one task at a time.
type clockBack struct {
	*base
	pending bool
}

func (c *clockBack) advanceRetries(ctx context.Context) {
	c.pending = c.Store.Queue.ClockSetBack() || c.pending
	if !c.pending {
		return
	}
	retries, err := c.Store.Queue.AdvanceRetries(ctx, longestRetry*5/4) // the longest after jitter
	swept := int64(0)
	if err == nil {
		swept, err = c.Store.Sweeps.Advance(ctx)
	}
	c.pending = err != nil
	switch {
	case err != nil && ctx.Err() == nil && !c.State.InOutage():
		c.Log.Warn("retries and sweeps may wait for the database's clock, which was set back; trying again", "error", err)
	case retries > 0 || swept > 0:
		c.Log.Warn("the database's clock was set back; retries and sweeps do not wait for it", "retries", retries, "sweeps", swept)
	}
}

// wakeOnMessages turns messages on the wake channel into polls. A message is only a hint that a
// transaction has committed. Polling finds the commits of messages that are lost, or sent while
// Redis is unavailable.
func (b *base) wakeOnMessages(ctx context.Context) {
	b.Redis.Listen(ctx, b.cfg.WakeChannel, keyspace.Listener{
		Heard: func() {
			b.metrics.wakes.Inc()
			b.State.Wake()
		},
		Subscribed: b.State.Subscribed,
	})
}
