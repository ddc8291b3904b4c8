package worker

import (
	"sync"
	"time"

	"github.com/unstale/unstale/internal/store"
)

// A proof shows that what was committed is invalidated: rows that one listing shows are gone from a
// later one. It has no clock and asks no server. Safe for concurrent use.
type proof struct {
	limit time.Duration // after which a row that is still listed makes no progress

	mu     sync.Mutex
	tables [store.ListedTables]tableProof
}

// A tableProof is the proof for one table. Its generation is all rows that waited at one listing,
// which has the first of them.
type tableProof struct {
	asOf  time.Time // all rows that were committed by then are gone; zero: no listing yet
	began time.Time // of the generation; zero: there is none
	last  uint64    // place of the last row of the generation
	seen  map[rowAt]time.Time
}

// A rowAt is a row at its place. A delayed row that fails again is another one, at a later place.
type rowAt struct{ id, place uint64 }

// observe takes a listing, and returns the rows that have been listed for the limit or longer. While
// the worker rests (it is paused, or a server is unavailable), no row can make progress, and the
// limit begins again. A sweep may take any time.
func (p *proof) observe(l store.Listing, resting bool) (late [store.ListedTables][]store.ListedRow) {
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

// advance moves asOf to the begin of the generation if all its rows are gone, and begins the next one.
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
	if t.asOf.IsZero() { // Rows that no listing shows were committed after all that it shows were inserted.
		oldest := l.Now
		for _, r := range list.Rows {
			if r.At.Before(oldest) {
				oldest = r.At
			}
		}
		t.asOf = l.Began.Add(oldest.Sub(l.Now))
	}
}

// see notes since when rows have been listed.
func (t *tableProof) see(now time.Time, list store.List, resting bool) {
	seen := make(map[rowAt]time.Time, len(list.Rows))
	for _, r := range list.Rows {
		at := rowAt{r.ID, r.Place}
		since, known := t.seen[at]
		if !known || resting {
			since = now
		}
		seen[at] = since
	}
	t.seen = seen
}

func (t *tableProof) late(now time.Time, list store.List, limit time.Duration) (late []store.ListedRow) {
	for _, r := range list.Rows {
		if now.Sub(t.seen[rowAt{r.ID, r.Place}]) >= limit {
			late = append(late, r)
		}
	}
	return late
}

// proven returns a time by which everything that was committed is invalidated, except for rows that
// wait after a failure and dead letters. It is zero before the first listing.
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
		for _, since := range p.tables[t].seen {
			if due := since.Add(p.limit); at.IsZero() || due.Before(at) {
				at = due
			}
		}
	}
	return at
}
