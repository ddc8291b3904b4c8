package store

import (
	"slices"
	"time"
)

// disturb makes the given number of random steps.
func (w *tableModel) disturb(steps int) {
	w.failing = w.choose(2) == 0
	w.cost = time.Duration(w.choose(3)) * 10 * time.Microsecond
	w.hiccup = time.Duration(w.choose(3)) * 10 * time.Millisecond
	w.limit = 1 + w.choose(60)
	for range steps {
		w.now = w.now.Add(time.Duration(w.choose(40)) * 100 * time.Microsecond)
		switch w.choose(16) {
		case 0, 1:
			w.begin()
		case 2, 3:
			if len(w.open) > 0 {
				w.insert(w.open[w.choose(len(w.open))])
			}
		case 4, 5:
			if len(w.open) > 0 {
				w.end(w.open[w.choose(len(w.open))], w.choose(4) > 0)
			}
		case 6:
			w.otherTakes()
		case 7:
			w.otherEnds()
		case 8:
			if w.choose(4) == 0 {
				w.now = w.now.Add(time.Duration(w.choose(20)) * 50 * time.Millisecond)
				w.purge()
				w.cost = time.Duration(w.choose(3)) * 10 * time.Microsecond
			}
		case 9:
			if id := uint64(w.choose(int(w.next) + 1)); id < w.next && w.rows[id] != nil && !slices.Contains(w.index, id) && w.rows[id].state == dead {
				w.rows[id] = &modelRow{state: committed, alien: true}
				w.enter(id)
			}
		default:
			w.workers[w.choose(len(w.workers))].step()
		}
	}
}

// begin opens a transaction: small, large or scattered.
func (w *tableModel) begin() {
	if w.next > 6000 { // the model is slow with many rows
		return
	}
	tx := &transaction{}
	w.open = append(w.open, tx)
	switch w.choose(40) {
	case 1:
		w.reserve(tx, 600, 2)
	case 2:
		w.reserve(tx, 300, 1)
	default:
		w.reserve(tx, 1+w.choose(8), 1+w.choose(2))
	}
	if w.choose(3) > 0 {
		w.insert(tx)
	}
}

// otherTakes lets another worker claim some rows, and perhaps delete them.
func (w *tableModel) otherTakes() {
	state := committed
	if w.choose(2) == 0 {
		state = deleting
	}
	for _, id := range w.index {
		if w.isFree(id) && w.choose(3) == 0 {
			w.rows[id].held, w.rows[id].state = true, state
			if w.held = append(w.held, id); len(w.held) > 20 {
				return
			}
		}
	}
}

func (w *tableModel) otherEnds() {
	commit := w.choose(2) == 0
	for _, id := range w.held {
		w.free(id, commit && w.rows[id].state == deleting)
	}
	w.held = nil
}

// settleDown ends errors and all transactions, except a few that have inserted their rows. Then it
// polls as a worker does until all rows are claimed.
func (w *tableModel) settleDown() {
	w.failing = false
	for _, tx := range slices.Clone(w.open) {
		if w.insert(tx); w.choose(4) > 0 {
			w.end(tx, w.choose(4) > 0)
		}
	}
	w.otherEnds()
	for _, k := range w.workers {
		k.abandon()
	}
	began := w.now
	for w.claimable() > 0 {
		w.now = w.now.Add(50 * time.Millisecond)
		if found := w.workers[0].poll(); found {
			for w.workers[0].claimAndSettle() > 0 {
				w.now = w.now.Add(time.Millisecond)
			}
		}
		for _, id := range w.index {
			bound := 3 * time.Second // the longest list takes 1/20 of it
			if w.rows[id].alien || began.Sub(w.gaveUp) < 2*longestRest {
				bound = longestRest + 5*time.Second
			}
			if w.isFree(id) && w.now.Sub(began) > bound {
				w.t.Fatalf("row %d was not claimed within %v: %v", id, bound, w)
			}
		}
	}
}

// idle polls for longer than rescans continue. Each poll is then one statement, except for a list
// of all IDs below the head, and claims ask for no row that is gone.
func (w *tableModel) idle() {
	w.hiccup = 0
	polls := func(n int, pace time.Duration) {
		for range n {
			w.now = w.now.Add(pace)
			if w.workers[0].poll() {
				w.t.Fatal("a poll found a row although none can be claimed")
			}
		}
	}
	polls(80, time.Second/2)
	if len(w.planner.passages) > 0 { // slow-scan mode ended and started again meanwhile
		polls(80, time.Second/2)
	}
	if p := w.planner; !p.slow && time.Duration(len(w.index))*w.cost > 2*p.quick {
		w.t.Fatalf("each poll scans %d entries at %v", len(w.index), w.cost)
	}
	const counted = 50
	began, lists := w.asked, w.planner.due[listStart]
	polls(counted, 50*time.Millisecond)
	if asked := w.asked - began; asked > counted && lists.Equal(w.planner.due[listStart]) {
		w.t.Fatalf("%d idle polls were %d statements", counted, asked)
	}
	w.workers[0].claimAndSettle()
	for _, s := range w.planner.stragglers {
		for id := s.first; id <= s.last; id++ {
			if w.rows[id].state != inserted {
				w.t.Fatalf("claims ask for row %d, which is gone", id)
			}
		}
	}
}

// drain commits the given number of rows after an ID of another transaction, and claims them.
func (w *tableModel) drain(rows int, late *transaction) {
	tx := &transaction{}
	w.reserve(late, 1, 1)
	w.reserve(tx, rows, 1)
	w.insert(tx)
	w.end(tx, true)
	for range 10 * (1 + rows/w.limit) {
		w.run(50 * time.Millisecond)
	}
}

// run waits and lets a worker claim.
func (w *tableModel) run(pace time.Duration) {
	w.now = w.now.Add(pace)
	w.workers[0].claimAndSettle()
}
