package worker

import (
	"sync"
	"time"

	"github.com/unstale/unstale/internal/store"
)

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
