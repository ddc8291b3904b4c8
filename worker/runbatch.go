package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/maintenance"
	"github.com/unstale/unstale/internal/session"
	"github.com/unstale/unstale/internal/store"
)

// contentionTries is how often a batch that met a deadlock or a lock wait timeout is repeated
// immediately.
const contentionTries = 3

// heavyTimes is how many times as long a batch of heavy rows may take as one of light ones.
const heavyTimes = 5

// A runner runs batches. Owned by the loop.
type runner struct {
	*base
	limit      time.Duration // of a batch of light rows, from the claim to the commit
	deprecated *deprecated
	known      *knownEntities
	spots      *maintenance.SpotChecker
	seen       *store.Seen
	failed     *rowLogs
	vanished   *vanished
	database   *databaseStatus
}

// runBatch claims one batch and processes it: claim, look up, expand, UNLINK, PUBLISH, settle. A
// batch that is open for further hints does all but the last for each of them: see collect. In
// MySQL it is all or nothing, and its effects in Redis are idempotent, so it can be interrupted
// anywhere. The fault of a row never stops others. An error is an outage of a server, and settles
// nothing.
//
// The batch finishes under a separate deadline even when ctx ends, so a stop leaves nothing half
// done. A batch of heavy rows is abandoned if it does not end soon after that.
func (r *runner) runBatch(ctx context.Context, t turn) (Result, error) {
	t.stopped = ctx.Done()
	ctx, cancel := r.batchContext(ctx, t)
	defer cancel()
	size := t.size()
	for try := 1; ; {
		done, err := r.try(ctx, t)
		switch {
		case err == nil:
			size.Grow()
			return done, nil
		case session.IsTooLarge(err) && !t.alone:
			t.alone, t.open = !size.Halve(), time.Time{}
			continue
		case ctx.Err() != nil: // it took too long
			size.Halve()
			return done, err
		case !session.IsContention(err):
			return done, err
		}
		r.metrics.state.Contention.Inc()
		if try++; try > contentionTries {
			return Result{}, fmt.Errorf("%d tries: %w", contentionTries, err)
		}
	}
}

// batchContext returns the context of a batch.
func (r *runner) batchContext(ctx context.Context, t turn) (context.Context, context.CancelFunc) {
	if !t.heavy {
		return context.WithTimeout(context.WithoutCancel(ctx), r.limit)
	}
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), heavyTimes*r.limit)
	stopped := context.AfterFunc(ctx, func() { time.AfterFunc(r.limit, cancel) })
	return limited, func() { stopped(); cancel() }
}

// try makes one attempt. A row that is alone and still too large for the journal is dead-lettered.
func (r *runner) try(ctx context.Context, t turn) (done Result, err error) {
	began := time.Now()
	m, most := r.maps.Map(), t.budget(&r.cfg)
	limits := t.limits(most, store.ClaimLimits{Bytes: r.cfg.BatchBytes, ParamsBytes: m.Limits().ParamsBytes})
	answered := r.metrics.mysql.timeCall(callClaim)
	c, err := t.lane.claim(ctx, limits)
	answered()
	if err != nil {
		return Result{}, err
	}
	if c == nil {
		t.lane.aside.remove(limits.Only) // they are gone, or another worker has locked them
		return Result{}, nil
	}
	over, _ := ctx.Deadline()
	r.State.Loop.BatchBegan(over)
	defer r.State.Loop.BatchEnded()
	parts, err := r.collect(ctx, t, c, limits, m, most)
	settled := outcomes(parts)
	if err == nil && len(parts[0].changes) > 0 {
		answered := r.metrics.mysql.timeCall(callSettle)
		err = c.Settle(ctx, settled...)
		answered()
	} else {
		err = errors.Join(err, c.Release())
	}
	if err != nil {
		t.lane.aside.putBack(limits.Only)
		r.cfg.Hooks.callBatch(c.AllRows(), began, Result{}, 0, err)
		return Result{}, err
	}
	for _, p := range parts {
		t.over(limits.Only, p.claim, p.batch)
		done.merge(p.done)
		done.Full = p.full
	}
	done.Took = time.Since(began)
	if len(parts[0].changes) == 0 {
		return done, nil
	}
	now := r.Store.Queue.Now(time.Now())
	for _, p := range parts {
		r.settled(p, now)
	}
	r.database.journaled(c.Journaled)
	r.metrics.batchDone(done, settled)
	rows := processed(parts)
	r.metrics.maps.entities.addRows(rows)
	r.cfg.Hooks.callBatch(rows, began, done, receivers(parts), nil)
	return done, nil
}

// settled records a part that was settled at a time of the database's clock.
func (r *runner) settled(p *part, now time.Time) {
	if len(p.changes) == 0 { // all are set aside
		return
	}
	r.spots.Offer(maintenance.SpotBatch{Unlinked: p.unlinks, SettledAt: now}, p.pick)
	r.seen.Settle(now, p.entities)
	r.metrics.late(r.Store.Queue.Age, p.claim, p.settlement.Done, p.settlement.Marks.Unlinked)
	r.failed.logRows(p.claim.Rows, p.settlement)
	r.vanished.countBatch(p.batch)
}

// apply applies a batch to Redis and returns the outcomes of its rows.
func (r *runner) apply(ctx context.Context, b *batch, most budget, alone bool) (done Result, s store.Settlement, err error) {
	if b.answers, err = b.resolve(ctx, r.lookup(most.light), r.cfg.BatchKeys, most.light); err != nil {
		return done, s, err
	}
	b.expand(b.answers, most)
	if len(b.changes) == 0 { // all are set aside
		return done, s, nil
	}
	r.known.delay(ctx, b)
	if err = b.unlink(ctx, r.Redis); err != nil {
		return done, s, fmt.Errorf("unlink keys: %w", err)
	}
	gone := b.blameFailures()
	unlinked := time.Now()
	published, err := r.Channels.Publish(ctx, keyspace.News{Keys: gone, Unlinked: b.unlinks.Born})
	if err != nil {
		return done, s, fmt.Errorf("publish keys: %w", err)
	}
	if alone {
		b.refuseJournal()
	}
	s = b.settlement(r.cfg)
	s.Position, s.Born = store.Position(b.unlinks.Position), b.unlinks.Born
	s.Marks = store.Marks{Unlinked: unlinked, Receivers: published.Receivers}
	if published.Messages > 0 {
		s.Marks.Published = time.Now()
	}
	for _, run := range published.Runs {
		s.Marks.Runs = append(s.Marks.Runs, store.MessageRun{Epoch: store.EpochHash(run.Epoch), First: run.First, Last: run.Last})
	}
	return Result{
		Claimed: len(b.changes), Unlinked: len(s.Done), Delayed: len(s.Delays), Dead: len(s.Dead),
		Repeats: len(s.Repeats), Keys: len(gone), Messages: published.Messages, Sweeps: len(s.Sweeps),
	}, s, nil
}

// lookup returns Lookups.LookupUpTo, measured. In a batch of light rows it does not read the
// answers that make a row heavy.
func (r *runner) lookup(light bool) lookupFunc {
	each := 0
	if light {
		each = lightNames
	}
	return func(ctx context.Context, query string, by [][]string, values int) ([][]string, error) {
		defer r.metrics.mysql.timeCall(callLookup)()
		found, err := r.Store.Lookups.LookupUpTo(ctx, query, by, values, each)
		r.deprecated.rememberRefusal(query, r.Store.Lookups.Ungrouped(query))
		return found, err
	}
}

// A Result is the result of one batch. The zero Result means that there was nothing to claim.
type Result struct {
	Claimed  int           // rows
	Full     bool          // the claim was as large as it may be: more rows probably wait
	Unlinked int           // rows whose keys are gone and that are settled
	Delayed  int           // rows delayed after a fault
	Dead     int           // rows dead-lettered
	Repeats  int           // repeats scheduled
	Keys     int           // distinct keys unlinked
	Messages int           // published
	Sweeps   int           // patterns and sets requested
	Took     time.Duration // from the claim to the commit
}

// merge adds another result, except for whether it is full.
func (r *Result) merge(o Result) {
	r.Claimed += o.Claimed
	r.Unlinked += o.Unlinked
	r.Delayed += o.Delayed
	r.Dead += o.Dead
	r.Repeats += o.Repeats
	r.Keys += o.Keys
	r.Messages += o.Messages
	r.Sweeps += o.Sweeps
	r.Took += o.Took
}

// A sweepList is the sweeps that a batch asks for, each once. The zero value is empty.
type sweepList struct {
	list []store.Sweep
	at   map[sweepName]int // in list
}

type sweepName struct {
	kind store.SweepKind
	name string
}

// addChange adds what a change asks for.
func (l *sweepList) addChange(c *change) {
	for _, p := range c.plan.Patterns {
		l.addSweep(c, sweepName{store.SweepPattern, p})
	}
	for _, s := range c.plan.Sets {
		l.addSweep(c, sweepName{store.SweepSet, s})
	}
}

// missing returns how many sweeps a change asks for that the list has not.
func (l *sweepList) missing(c *change) (n int) {
	for _, p := range c.plan.Patterns {
		if _, known := l.at[sweepName{store.SweepPattern, p}]; !known {
			n++
		}
	}
	for _, s := range c.plan.Sets {
		if _, known := l.at[sweepName{store.SweepSet, s}]; !known {
			n++
		}
	}
	return n
}

// addSweep adds one sweep, with the longest hold of the changes that request it. Repeats are not
// among the requesting rows, since tokens do not wait for them.
func (l *sweepList) addSweep(c *change, n sweepName) {
	i, known := l.at[n]
	if !known {
		if l.at == nil {
			l.at = map[sweepName]int{}
		}
		i = len(l.list)
		l.at[n] = i
		l.list = append(l.list, store.Sweep{Kind: n.kind, Name: n.name})
	}
	s := &l.list[i]
	s.HoldMillis = max(s.HoldMillis, millis(c.plan.Hold))
	if !c.row.Repeated {
		s.Asked(c.row.FirstID)
	}
}

// millis returns a duration in milliseconds, rounded up.
func millis(d time.Duration) int64 { return int64((d + time.Millisecond - 1) / time.Millisecond) }
