package worker

import (
	"context"
	"fmt"
	"time"

	"github.com/unstale/unstale/internal/store"
)

const (
	// provePeriod is how often a prover lists what waits.
	provePeriod = 500 * time.Millisecond
	// proveShare bounds the share of the time that its listings take, while deleted rows that are not
	// purged make them slow: one part in so many.
	proveShare = 20
	// lateGrace is how much longer than the claim timeout a row may be listed. A worker that vanished
	// keeps its rows for the claim timeout.
	lateGrace = 2 * time.Second
)

// Why rows make no progress: the label of the metric unstale_stalled.
const (
	stalledCommit = "commit" // a COMMIT does not return
	stalledHeld   = "held"   // another session has rows locked
	stalledBehind = "behind" // rows are free, and no worker claims them
)

var stalledReasons = []string{stalledCommit, stalledHeld, stalledBehind}

// An outboxView is what a prover asks of the outbox.
type outboxView interface {
	List(context.Context) (store.Listing, error)
	AnyFree(context.Context, store.ListedTable, []uint64) (bool, error)
	Hung() error
}

// A prover looks in a goroutine of its own whether what is committed is invalidated, whichever worker
// does it, and tells health if it is not.
type prover struct {
	proof
	outbox  outboxView
	health  *health
	metrics *metrics
	resting func() bool // whether rows cannot make progress, for a reason that health knows

	held map[rowAt]bool // late rows that another session had locked, all of them
}

// run lists what waits until ctx ends.
func (p *prover) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		timer.Reset(p.step(ctx))
	}
}

// step makes one listing, and returns the wait before the next one. The loop tells of outages, so
// errors only make the proof older.
func (p *prover) step(ctx context.Context) time.Duration {
	if err := p.outbox.Hung(); err != nil { // the loop may wait for that COMMIT
		p.health.down(err)
	}
	l, err := p.outbox.List(ctx)
	if err != nil {
		return provePeriod
	}
	took := time.Since(l.Began)
	reason, err := p.judge(ctx, l)
	if ctx.Err() != nil {
		return 0
	}
	p.health.stall(reason, err)
	p.metrics.behind.Set(time.Since(p.proven()).Seconds())
	wait := max(provePeriod, proveShare*took)
	if next := p.nextLate(); !next.IsZero() {
		wait = min(wait, max(time.Until(next), provePeriod/5))
	}
	return wait
}

// judge returns why rows of a listing make no progress, or nil.
func (p *prover) judge(ctx context.Context, l store.Listing) (reason string, why error) {
	late := p.observe(l, p.resting())
	held := time.Duration(0)
	for t, rows := range late {
		table := store.ListedTable(t)
		if len(rows) == 0 {
			continue
		}
		first := rows[0]
		for _, r := range rows {
			if r.At.Before(first.At) {
				first = r
			}
		}
		age := max(l.Now.Sub(first.At), p.limit)
		free, err := p.free(ctx, table, rows)
		switch {
		case err != nil: // the next listing tries again
		case !free:
			held = max(held, age)
			reason, why = stalledHeld, fmt.Errorf("%s %s for %s, and another session has %s locked; end its transaction: docs/runbook.md#a-row-is-held",
				rowsOf(table, first.ID, len(rows)), verb(len(rows), "has waited", "have waited"), age.Round(time.Second), verb(len(rows), "it", "them"))
		case why == nil:
			reason, why = stalledBehind, fmt.Errorf("%s %s for %s, and no worker claims %s; start more workers: docs/operations.md#what-waits",
				rowsOf(table, first.ID, len(rows)), verb(len(rows), "has waited", "have waited"), age.Round(time.Second), verb(len(rows), "it", "them"))
		}
	}
	p.metrics.held.Set(held.Seconds())
	return reason, why
}

// free reports whether a claim could have one of the late rows. Rows that were found locked count as
// locked until all of them are gone: the next claim takes those that their session releases.
func (p *prover) free(ctx context.Context, table store.ListedTable, late []store.ListedRow) (bool, error) {
	ids := make([]uint64, len(late))
	for i, r := range late {
		if p.held[rowAt{r.ID, r.Place}] {
			return false, nil
		}
		ids[i] = r.ID
	}
	free, err := p.outbox.AnyFree(ctx, table, ids)
	if err == nil && !free {
		p.held = map[rowAt]bool{}
		for _, r := range late {
			p.held[rowAt{r.ID, r.Place}] = true
		}
	}
	return free, err
}

func rowsOf(table store.ListedTable, first uint64, n int) string {
	if n == 1 {
		return fmt.Sprintf("row %d of %s", first, table)
	}
	return fmt.Sprintf("%d rows of %s, the oldest %d,", n, table, first)
}

func verb(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}
