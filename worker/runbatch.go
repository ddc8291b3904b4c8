package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/store"
)

// A Result says what one batch did. The zero Result means that there was nothing to claim.
type Result struct {
	Claimed  int           // rows
	Full     bool          // the claim was as large as it may be: more rows probably wait
	Unlinked int           // rows whose keys are gone and that are settled
	Delayed  int           // rows delayed after a failure of their own
	Dead     int           // rows dead-lettered
	Repeats  int           // repeats scheduled
	Keys     int           // distinct keys unlinked
	Messages int           // published
	Sweeps   int           // patterns and sets requested
	Took     time.Duration // from the claim to the commit
}

// contentionTries is how often a batch that met a deadlock or a lock wait timeout is repeated at once.
const contentionTries = 3

// claimFunc takes rows: Store.Claim or Store.ClaimDue.
type claimFunc func(context.Context, store.ClaimLimits) (*store.Claim, error)

// heavyTimes is how many times as long a batch of heavy rows may take as one of light ones.
const heavyTimes = 5

// runBatch claims one batch and carries it: claim, look up, expand, UNLINK, PUBLISH, settle. It is all or nothing for
// MySQL, and what it did to Redis is harmless to repeat, so it may be cut off anywhere. A row's own fault never stops
// its neighbours; an error is an outage of a server, and settles nothing.
//
// The batch finishes under a deadline of its own even when ctx ends, so that a stop leaves nothing half done; one of heavy
// rows is given up if it is not over soon after that.
func (w *engine) runBatch(ctx context.Context, t turn) (Result, error) {
	ctx, cancel := w.batchContext(ctx, t)
	defer cancel()
	alone, size := false, t.size()
	for try := 1; ; {
		r, err := w.tryBatch(ctx, t, alone)
		switch {
		case err == nil:
			size.grow()
			return r, nil
		case store.IsTooLarge(err) && !alone:
			alone = !size.halve()
			continue
		case ctx.Err() != nil: // it took too long
			size.halve()
			return r, err
		case !store.IsContention(err):
			return r, err
		}
		w.metrics.contention.Inc()
		if try++; try > contentionTries {
			return Result{}, fmt.Errorf("%d tries: %w", contentionTries, err)
		}
	}
}

// batchContext is the context of a batch.
func (w *engine) batchContext(ctx context.Context, t turn) (context.Context, context.CancelFunc) {
	if !t.heavy {
		return context.WithTimeout(context.WithoutCancel(ctx), w.batchLimit)
	}
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), heavyTimes*w.batchLimit)
	stopped := context.AfterFunc(ctx, func() { time.AfterFunc(w.batchLimit, cancel) })
	return limited, func() { stopped(); cancel() }
}

// tryBatch makes one attempt. A row that is alone and still too large for the journal is dead-lettered.
func (w *engine) tryBatch(ctx context.Context, t turn, alone bool) (r Result, err error) {
	began := time.Now()
	m, most := w.maps.Map(), t.budget(&w.cfg)
	limits := t.limits(most, store.ClaimLimits{Bytes: w.cfg.BatchBytes, ParamsBytes: m.Limits().ParamsBytes})
	answered := w.metrics.mysql.begin(callClaim)
	c, err := t.lane.claim(ctx, limits)
	answered()
	if err != nil {
		return Result{}, err
	}
	if c == nil {
		t.gone(limits.Only)
		return Result{}, nil
	}
	claimed := time.Now()
	over, _ := ctx.Deadline()
	w.pulse.begin(over)
	defer w.pulse.end()
	b := newBatch(m, c.Rows, most)
	r, settlement, err := w.apply(ctx, b, most, alone)
	if err == nil && len(b.changes) > 0 {
		settlement.Marks.Claimed = claimed
		settled := w.metrics.mysql.begin(callSettle)
		err = c.Settle(ctx, settlement)
		settled()
	} else {
		err = errors.Join(err, c.Release())
	}
	if err != nil {
		t.failed(limits.Only)
		w.trace(c.Rows, began, Result{}, store.Settlement{}, err)
		return Result{}, err
	}
	t.over(limits.Only, c, b)
	r.Full = len(c.Rows) >= limits.Rows || len(c.Left) > 0 || len(b.changes)+len(b.aside) < len(c.Rows)
	r.Took = time.Since(began)
	if len(b.changes) == 0 {
		return r, nil
	}
	w.metrics.batchDone(r, settlement)
	rows := b.rows(c.Rows)
	w.metrics.maps.entities.addRows(rows)
	w.metrics.late(w.store, c, settlement.Done, settlement.Marks.Unlinked)
	w.logFailedRows(c.Rows, settlement)
	w.noteVanished(b)
	w.trace(rows, began, r, settlement, nil)
	return r, nil
}

// apply carries a batch to Redis and says what becomes of its rows.
func (w *engine) apply(ctx context.Context, b *batch, most budget, alone bool) (r Result, s store.Settlement, err error) {
	if b.answers, err = b.resolve(ctx, w.lookup, w.cfg.BatchKeys); err != nil {
		return r, s, err
	}
	b.expand(b.answers, most)
	if len(b.changes) == 0 { // all are set aside
		return r, s, nil
	}
	w.delayKnown(ctx, b)
	done, err := b.unlink(ctx, w.redis)
	if err != nil {
		return r, s, fmt.Errorf("unlink keys: %w", err)
	}
	gone := b.blameFailures(done.Failures)
	unlinked := time.Now()
	published, err := w.publish(ctx, keyspace.News{Keys: gone, Unlinked: done.Born})
	if err != nil {
		return r, s, fmt.Errorf("publish keys: %w", err)
	}
	if alone {
		b.refuseJournal()
	}
	s = b.settlement(w.cfg)
	s.Position, s.Born = store.Position(done.Position), done.Born
	s.Marks = store.Marks{Unlinked: unlinked, Receivers: published.Receivers}
	if published.Messages > 0 {
		s.Marks.Published = time.Now()
	}
	for _, r := range published.Runs {
		s.Marks.Runs = append(s.Marks.Runs, store.Run{Epoch: store.EpochHash(r.Epoch), First: r.First, Last: r.Last})
	}
	return Result{
		Claimed: len(b.changes), Unlinked: len(s.Done), Delayed: len(s.Delays), Dead: len(s.Dead),
		Repeats: len(s.Repeats), Keys: len(gone), Messages: published.Messages, Sweeps: len(s.Sweeps),
	}, s, nil
}

// lookup is Store.Lookup, measured.
func (w *engine) lookup(ctx context.Context, query string, by [][]string, values int) ([][]string, error) {
	defer w.metrics.mysql.begin(callLookup)()
	found, err := w.store.Lookup(ctx, query, by, values)
	w.deprecated.note(w.maps.Map(), query, w.store.Ungrouped(query))
	return found, err
}
