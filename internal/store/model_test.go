package store

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// A rowState is the state of a row in a tableModel.
type rowState int

const (
	reserved  rowState = iota // the ID was assigned; no row
	inserted                  // not committed
	committed                 // can be claimed, unless it is held
	deleting                  // held, and deleted by a transaction that has not committed
	dead                      // deleted, and not purged
)

type modelRow struct {
	state rowState
	held  bool
	since time.Time // when it was given out
	// Only a list from the start must find it: an operator chose its ID, or its deletion was undone
	// late.
	alien bool
}

// A transaction is an application's.
type transaction struct{ ids []uint64 }

// A tableModel simulates cache_outbox and its users: applications, another worker, and workers that
// share a planner. It has a simulated clock.
type tableModel struct {
	t       *testing.T
	choose  func(int) int
	now     time.Time
	planner *planner
	workers []*modelWorker
	rows    map[uint64]*modelRow
	index   []uint64 // ids of rows that exist or are not purged
	next    uint64
	open    []*transaction
	held    []uint64      // by another worker
	cost    time.Duration // per entry that a scan passes
	hiccup  time.Duration // maximum, per scan
	rtt     time.Duration
	limit   int       // rows of a claim
	failing bool      // scans fail
	gaveUp  time.Time // when a list last did
	asked   int       // statements
	walked  int       // entries, by claims
}

func newTableModel(t *testing.T, choose func(int) int) *tableModel {
	w := &tableModel{t: t, choose: choose, now: time.Unix(1e9, 0), planner: &planner{quick: quickScan}, rows: map[uint64]*modelRow{}, limit: 50}
	w.next = uint64(choose(2)) // an administrator may have chosen the first ID, 0 included
	w.rtt = []time.Duration{200 * time.Microsecond, 3 * time.Millisecond, 8 * time.Millisecond}[choose(3)]
	w.workers = []*modelWorker{{tableModel: w}, {tableModel: w}}
	return w
}

// reserve assigns IDs.
func (w *tableModel) reserve(tx *transaction, n, gap int) {
	for range n {
		tx.ids = append(tx.ids, w.next)
		w.rows[w.next] = &modelRow{since: w.now}
		w.next += uint64(gap)
	}
}

func (w *tableModel) insert(tx *transaction) {
	for _, id := range tx.ids {
		if r := w.rows[id]; r.state == reserved {
			r.state = inserted
			w.enter(id)
		}
	}
}

func (w *tableModel) enter(id uint64) {
	i, _ := slices.BinarySearch(w.index, id)
	w.index = slices.Insert(w.index, i, id)
}

// end commits or rolls back.
func (w *tableModel) end(tx *transaction, commit bool) {
	for _, id := range tx.ids {
		r := w.rows[id]
		switch {
		case r.state == inserted && commit:
			r.state = committed
		default:
			r.state = dead
		}
	}
	w.open = slices.DeleteFunc(w.open, func(o *transaction) bool { return o == tx })
}

// free ends the lock on a row.
func (w *tableModel) free(id uint64, gone bool) {
	r := w.rows[id]
	r.held = false
	if gone {
		r.state = dead
		return
	}
	r.alien = r.alien || r.state == deleting && w.now.Sub(r.since) > rescanLife/2
	r.state = committed
}

func (w *tableModel) purge() {
	w.index = slices.DeleteFunc(w.index, func(id uint64) bool { return w.rows[id].state == dead })
}

// from returns the entries from an ID on.
func (w *tableModel) from(id uint64) []uint64 {
	i, _ := slices.BinarySearch(w.index, id)
	return w.index[i:]
}

func (w *tableModel) isFree(id uint64) bool {
	r := w.rows[id]
	return r.state == committed && !r.held
}

func (w *tableModel) claimable() (n int) {
	for _, id := range w.index {
		if w.isFree(id) {
			n++
		}
	}
	return n
}

// answer returns the server's current answer to a scan.
func (w *tableModel) answer(s *scan) (a answer) {
	a.rtt = w.rtt
	walked := time.Duration(0)
	if s.kind == scanFirst {
		a.took += a.rtt
		for _, id := range w.index {
			walked++
			if st := w.rows[id].state; st == committed || st == deleting {
				a.first = firstRow{true, id}
				break
			}
		}
	}
	for i := range s.spans {
		if s.spans[i].last == allIDs {
			s.spans[i].last = max(w.next, 1) - 1
		}
		for _, id := range w.from(s.spans[i].first) {
			if id > s.spans[i].last || len(a.ids) > maxListed {
				break
			}
			walked++
			if st := w.rows[id].state; st == inserted || st == committed {
				a.ids = append(a.ids, id)
			}
		}
	}
	a.took += walked * w.cost
	if w.hiccup > 0 && w.choose(4) == 0 {
		a.took += time.Duration(w.choose(10)) * w.hiccup / 10
	}
	return a
}

// String describes the model's state for a test failure.
func (w *tableModel) String() string {
	p := w.planner
	return fmt.Sprintf("now %v, %d entries at %v, head %d, slow %t, %d stragglers, passages %v, due %v", w.now, len(w.index), w.cost, p.head, p.slow, len(p.stragglers), p.passages, p.due)
}
