package worker

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/unstale/unstale/internal/maintenance"
	"github.com/unstale/unstale/internal/sleep"
	"github.com/unstale/unstale/internal/store"
)

const (
	// provePeriod is how often a prover lists what waits.
	provePeriod = 500 * time.Millisecond
	// proveShare bounds the share of the time that its listings take, while deleted rows that are
	// not purged make them slow: one part in so many.
	proveShare = 20
	// lateGrace is how much longer than the claim timeout a row may be listed. A worker that
	// vanished keeps its rows for the claim timeout.
	lateGrace = 2 * time.Second
)

// A prover checks in a separate goroutine whether committed rows are invalidated, by any worker,
// and reports to health if they are not.
type prover struct {
	*base
	proof
	// the status records, store.Workers but in tests
	workers interface {
		Workers(context.Context) ([]store.WorkerNote, error)
	}
	heavy *heavyRows // which the loop has set aside or processes
	// how long another worker may have heavy rows locked: a batch that ends at its deadline leaves
	// rows to the next one
	heavyLimit time.Duration

	// late rows that another session has locked, by when they were found
	held [store.ListedTables]map[rowAt]time.Time
	// since when listings have found free rows that no worker claims; zero: the last one did not
	unclaimed time.Time
	// when, at the latest, other workers wrote their first status record without heavy rows since then
	light map[string]time.Time
}

func newProver(b *base, heavy *heavyRows) prover {
	limit := b.Store.Sessions.ClaimTimeout() + lateGrace
	return prover{
		base: b, proof: proof{limit: limit}, workers: b.Store.Workers, heavy: heavy,
		heavyLimit: 2*heavyTimes*b.Store.Sessions.BatchLimit() + lateGrace,
	}
}

// watchRows lists what waits until ctx ends.
func (p *prover) watchRows(ctx context.Context) { sleep.Repeat(ctx, p.step) }

// step makes one listing, and returns the wait before the next one. The loop reports outages, so
// errors only make the proof older.
func (p *prover) step(ctx context.Context) time.Duration {
	l, err := p.Store.Queue.List(ctx)
	if err != nil {
		return provePeriod
	}
	// the loop may wait for that COMMIT; if reads are slow, too, it reports what it finds
	if err := p.Store.Sessions.Hung(); err != nil && time.Since(l.Began) < time.Second {
		p.State.Down(err)
	}
	took := time.Since(l.Began)
	reason, err := p.judge(ctx, l)
	if ctx.Err() != nil {
		return 0
	}
	p.State.Stall(reason, err)
	asOf := p.proven()
	p.State.Proven.Store(&asOf)
	p.metrics.behind.Set(time.Since(asOf).Seconds())
	wait := max(provePeriod, proveShare*took)
	if next := p.nextLate(); !next.IsZero() {
		wait = min(wait, max(time.Until(next), provePeriod/5))
	}
	return wait
}

// judge returns why rows of a listing make no progress, or nil. A locked row comes first: it waits
// with any number of workers. If other workers live, free rows count after presencePeriod: one may
// just have begun with heavy rows, which its status record does not tell yet.
func (p *prover) judge(ctx context.Context, l store.Listing) (reason string, why error) {
	held, unclaimed := time.Duration(0), time.Time{}
	for t, rows := range p.observe(l, p.State.Rests()) {
		table := store.ListedTable(t)
		p.forget(table, rows)
		rows = p.heavy.without(table, rows)
		others, heavy := false, false
		if len(rows) > 0 {
			others, heavy = p.others(ctx)
		}
		passed, behind := p.split(rows, heavy)
		for _, late := range [...][]lateRow{passed, behind} {
			if len(late) == 0 {
				continue
			}
			free, err := p.free(ctx, table, late)
			// another worker has set them aside, for their turn, or was too long at heavy rows
			if free && heavy {
				continue
			}
			age := max(l.Now.Sub(oldest(late).At), p.limit)
			switch {
			case err != nil: // the next listing tries again
			case !free && (p.mayBeHeavy(ctx, table, late) || !p.stillWait(ctx, table, late)):
			case !free:
				held = max(held, age)
				reason, why = maintenance.StalledHeld, fmt.Errorf("%s, and another session has %s locked; end its transaction, unless it is a worker's: docs/operations.md#a-row-is-held",
					waited(table, late, age), verb(len(late), "it", "them"))
			case why == nil:
				unclaimed = cmp.Or(p.unclaimed, time.Now())
				if others && time.Since(unclaimed) < presencePeriod {
					continue
				}
				reason, why = maintenance.StalledBehind, fmt.Errorf("%s, and no worker claims %s; start more workers: docs/operations.md#what-waits",
					waited(table, late, age), verb(len(late), "it", "them"))
			}
		}
	}
	p.unclaimed = unclaimed
	p.metrics.held.Set(held.Seconds())
	return reason, why
}

// split separates late rows into those that claims pass over, and those that may only wait behind
// others. A row counts as passed over after the limit, since a worker that is processing it may
// settle it after rows behind it. Heavy rows of another worker are passed over until it is their
// turn.
func (p *prover) split(late []lateRow, heavy bool) (passed, behind []lateRow) {
	for _, r := range late {
		if r.passed > 0 && (heavy || r.passed >= p.limit) {
			passed = append(passed, r)
		} else {
			behind = append(behind, r)
		}
	}
	return passed, behind
}

func oldest(rows []lateRow) lateRow {
	return slices.MinFunc(rows, func(a, b lateRow) int { return a.At.Compare(b.At) })
}

// free reports whether a claim could have one of the late rows. Rows that were found locked count
// as locked until all of them are gone: the next claim takes those that their session releases.
func (p *prover) free(ctx context.Context, table store.ListedTable, late []lateRow) (bool, error) {
	ids := make([]uint64, len(late))
	for i, r := range late {
		if _, locked := p.held[table][rowAt{r.ID, r.Place}]; locked {
			return false, nil
		}
		ids[i] = r.ID
	}
	free, err := p.Store.Queue.AnyFree(ctx, table, ids)
	if err == nil && !free {
		for _, r := range late {
			p.held[table][rowAt{r.ID, r.Place}] = time.Now()
		}
	}
	return free, err
}

// forget drops rows that are no longer late from the rows that were found locked.
func (p *prover) forget(table store.ListedTable, late []lateRow) {
	held := map[rowAt]time.Time{}
	for _, r := range late {
		if since, known := p.held[table][rowAt{r.ID, r.Place}]; known {
			held[rowAt{r.ID, r.Place}] = since
		}
	}
	p.held[table] = held
}

// mayBeHeavy reports whether another worker may have late rows locked because it processes heavy
// rows, which takes it longer than the claim timeout. The status record of a worker excludes that
// if it was made after the rows were found locked. When it was made is not known, only when it was
// written, which a busy machine delays. But a worker makes a record after it has written the last
// one, so the second one that was written since then was also made since then.
func (p *prover) mayBeHeavy(ctx context.Context, table store.ListedTable, late []lateRow) bool {
	found := time.Now()
	for _, r := range late {
		if since, known := p.held[table][rowAt{r.ID, r.Place}]; known && since.Before(found) {
			found = since
		}
	}
	if time.Since(found) > p.heavyLimit {
		return false
	}
	tells, asked := found.Add(heavyNews), time.Now()
	workers, err := p.workers.Workers(ctx)
	if err != nil {
		return true // the next listing tries again
	}
	took := time.Since(asked) // a record is younger by at most that
	may, light := false, map[string]time.Time{}
	for _, n := range workers {
		if n.ID == p.Store.ID || !n.Lives() {
			continue
		}
		written, first := asked.Add(-n.Silent), p.light[n.ID]
		if n.Heavy == nil && !written.Before(tells) {
			if first.Before(tells) {
				first = written.Add(took)
			}
			light[n.ID] = first
		}
		may = may || light[n.ID].IsZero() || written.Sub(first) < presencePeriod/2
	}
	p.light = light
	return may
}

// others reports whether other workers live, and whether the record of one has heavy rows.
func (p *prover) others(ctx context.Context) (live, heavy bool) {
	workers, err := p.workers.Workers(ctx)
	if err != nil {
		return false, false
	}
	for _, n := range workers {
		if n.ID != p.Store.ID && n.Lives() {
			live, heavy = true, heavy || n.Heavy != nil
		}
	}
	return live, heavy
}

// stillWait reports whether late rows still wait. The worker that had them locked may have settled
// them after the listing, and before its record was read, which then has no heavy rows.
func (p *prover) stillWait(ctx context.Context, table store.ListedTable, late []lateRow) bool {
	l, err := p.Store.Queue.List(ctx)
	if err != nil {
		return false // the next listing tries again
	}
	waits := map[rowAt]bool{}
	for _, r := range l.Lists[table].Rows {
		waits[rowAt{r.ID, r.Place}] = true
	}
	return slices.ContainsFunc(late, func(r lateRow) bool { return waits[rowAt{r.ID, r.Place}] })
}

// waited describes which rows have waited and for how long.
func waited(table store.ListedTable, late []lateRow, age time.Duration) string {
	first := oldest(late).ID
	if len(late) == 1 {
		return fmt.Sprintf("row %d of %s has waited for %s", first, table, age.Round(time.Second))
	}
	return fmt.Sprintf("%d rows of %s, the oldest %d, have waited for %s", len(late), table, first, age.Round(time.Second))
}

func verb(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

// A proof shows that what was committed is invalidated: rows that one listing shows are gone from a
// later one. It has no clock and asks no server. Safe for concurrent use.
type proof struct {
	limit time.Duration // a row that is listed for longer makes no progress

	mu     sync.Mutex
	tables [store.ListedTables]tableProof
}

// A tableProof is the proof for one table. Its generation is all rows that waited at one listing,
// which has the first of them.
type tableProof struct {
	asOf  time.Time // all rows that were committed by then are gone; zero: no listing yet
	began time.Time // of the generation; zero: there is none
	last  uint64    // place of the last row of the generation
	seen  map[rowAt]sighting
}

// A sighting is how long a row has been listed.
type sighting struct {
	since  time.Time // the first listing that shows it
	passed time.Time // the first that shows that a row behind it is gone, zero: none has
}

// A lateRow has been listed for the limit or longer.
type lateRow struct {
	store.ListedRow
	passed time.Duration // for how long rows behind it have been gone, 0: none is
}

// A rowAt is a row at its place. A delayed row that fails again is another one, at a later place.
type rowAt struct{ id, place uint64 }

// observe takes a listing, and returns the rows that have been listed for the limit or longer.
// While the worker rests (it is paused, or a server is unavailable), no row can make progress, and
// the limit begins again. A sweep may take any time.
func (p *proof) observe(l store.Listing, resting bool) (late [store.ListedTables][]lateRow) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for t := range p.tables {
		table, list := &p.tables[t], l.Lists[t]
		table.advance(l, list)
		table.see(l.Began, list, resting)
		if store.ListedTable(t) != store.ListedSweeps {
			late[t] = table.late(l.Began, list, p.limit)
		}
	}
	return late
}

// advance moves asOf to the begin of the generation if all its rows are gone, and begins the next
// one.
func (t *tableProof) advance(l store.Listing, list store.List) {
	switch {
	case len(list.Rows) == 0:
		t.asOf, t.began = l.Began, time.Time{}
		return
	case t.began.IsZero():
	case list.Rows[0].Place > t.last:
		t.asOf = t.began
	default:
		return
	}
	t.began, t.last = l.Began, list.Last
	// Rows that no listing shows were committed after all that it shows were inserted.
	if t.asOf.IsZero() {
		oldest := l.Now
		for _, r := range list.Rows {
			if r.At.Before(oldest) {
				oldest = r.At
			}
		}
		t.asOf = l.Began.Add(oldest.Sub(l.Now))
	}
}

// see notes since when rows have been listed, and since when rows behind them are gone.
func (t *tableProof) see(now time.Time, list store.List, resting bool) {
	gone := t.lastGone(list)
	seen := make(map[rowAt]sighting, len(list.Rows))
	for _, r := range list.Rows {
		s, known := t.seen[rowAt{r.ID, r.Place}]
		switch {
		case !known || resting:
			s = sighting{since: now}
		case s.passed.IsZero() && r.Place < gone:
			s.passed = now
		}
		seen[rowAt{r.ID, r.Place}] = s
	}
	t.seen = seen
}

// lastGone returns the last place whose row has gone since the listing before. Rows behind the end
// of a full listing may only not be shown.
func (t *tableProof) lastGone(list store.List) (place uint64) {
	shown := make(map[rowAt]bool, len(list.Rows))
	for _, r := range list.Rows {
		shown[rowAt{r.ID, r.Place}] = true
	}
	for at := range t.seen {
		hidden := len(list.Rows) >= store.MaxListing && at.place > list.Rows[len(list.Rows)-1].Place
		if at.place > place && !hidden && !shown[at] {
			place = at.place
		}
	}
	return place
}

func (t *tableProof) late(now time.Time, list store.List, limit time.Duration) (late []lateRow) {
	for _, r := range list.Rows {
		if s := t.seen[rowAt{r.ID, r.Place}]; now.Sub(s.since) >= limit {
			l := lateRow{ListedRow: r}
			if !s.passed.IsZero() {
				l.passed = now.Sub(s.passed)
			}
			late = append(late, l)
		}
	}
	return late
}

// proven returns a time such that all earlier commits are invalidated, except rows that wait after
// a failure and dead letters. It is zero before the first listing.
func (p *proof) proven() (asOf time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, t := range p.tables {
		if i == 0 || t.asOf.Before(asOf) {
			asOf = t.asOf
		}
	}
	return asOf
}

// nextLate returns when the first row that is listed now will be late, zero without rows.
func (p *proof) nextLate() (at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, t := range [...]store.ListedTable{store.ListedHot, store.ListedDue} {
		for _, s := range p.tables[t].seen {
			if due := s.since.Add(p.limit); at.IsZero() || due.Before(at) {
				at = due
			}
		}
	}
	return at
}
