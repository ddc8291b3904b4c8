package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

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

// runBatch claims one batch and carries it: claim, look up, expand, UNLINK, PUBLISH, settle. It is all or nothing for
// MySQL, and what it did to Redis is harmless to repeat, so it may be cut off anywhere. A row's own fault never stops
// its neighbours; an error is an outage of a server, and settles nothing.
//
// The batch finishes under a deadline of its own even when ctx ends, so that a stop leaves nothing half done.
func (w *engine) runBatch(ctx context.Context, claim claimFunc) (Result, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), w.batchLimit)
	defer cancel()
	alone := false
	for try := 1; ; {
		r, err := w.tryBatch(ctx, claim, alone)
		switch {
		case err == nil:
			w.size.grow()
			return r, nil
		case store.IsTooLarge(err) && !alone:
			alone = !w.size.halve()
			continue
		case ctx.Err() != nil: // it took too long
			w.size.halve()
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

// tryBatch makes one attempt. A row that is alone and still too large for the journal is dead-lettered.
func (w *engine) tryBatch(ctx context.Context, claim claimFunc, alone bool) (Result, error) {
	began := time.Now()
	m := w.maps.Map()
	answered := w.metrics.mysql.begin(callClaim)
	c, err := claim(ctx, store.ClaimLimits{
		Rows: w.size.now, Bytes: w.cfg.BatchBytes, ParamsBytes: m.Limits().ParamsBytes,
	})
	answered()
	if c == nil || err != nil {
		return Result{}, err
	}
	claimed := time.Now()
	over, _ := ctx.Deadline()
	w.pulse.begin(over)
	defer w.pulse.end()
	b := newBatch(m, c.Rows)
	r, settlement, err := w.apply(ctx, b, alone)
	if err == nil {
		settlement.Marks.Claimed = claimed
		settled := w.metrics.mysql.begin(callSettle)
		err = c.Settle(ctx, settlement)
		settled()
	} else {
		err = errors.Join(err, c.Release())
	}
	if err != nil {
		w.trace(c.Rows, began, Result{}, store.Settlement{}, err)
		return Result{}, err
	}
	r.Full = r.Claimed >= w.size.now || r.Claimed < len(c.Rows)
	r.Took = time.Since(began)
	w.metrics.batchDone(r, settlement)
	w.metrics.maps.entities.addRows(c.Rows[:r.Claimed])
	w.metrics.late(w.store, c, settlement.Done, settlement.Marks.Unlinked)
	w.logFailedRows(c.Rows, settlement)
	w.noteVanished(b)
	w.trace(c.Rows[:r.Claimed], began, r, settlement, nil)
	return r, nil
}

// apply carries a batch to Redis and says what becomes of its rows.
func (w *engine) apply(ctx context.Context, b *batch, alone bool) (r Result, s store.Settlement, err error) {
	if b.answers, err = b.resolve(ctx, w.lookup, w.cfg.BatchKeys); err != nil {
		return r, s, err
	}
	b.expand(b.answers, w.cfg.BatchKeys)
	w.delayKnown(ctx, b)
	done, err := b.unlink(ctx, w.redis)
	if err != nil {
		return r, s, fmt.Errorf("unlink keys: %w", err)
	}
	gone := b.blameFailures(done.Failures)
	unlinked := time.Now()
	published, err := w.publish(ctx, gone, nil)
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
	return w.store.Lookup(ctx, query, by, values)
}
