package store

import (
	"slices"
	"time"
)

// A modelWorker polls, claims and settles as a Queue does.
type modelWorker struct {
	*tableModel
	request *request // running
	scans   int      // of the request
	scan    *scan    // running
	early   *answer  // to the scan, unless the server reads at its end
	claimed []ClaimedRow
}

// step continues the running request.
func (k *modelWorker) step() {
	switch {
	case k.scan != nil:
		k.endScan()
	case k.request != nil:
		k.plan()
	case len(k.claimed) > 0:
		k.settle(k.choose(len(k.claimed) + 1))
	default:
		k.request = &request{began: k.now, poll: k.choose(2) == 0}
	}
}

func (k *modelWorker) plan() (found bool) {
	s, at := k.planner.plan(*k.request)
	k.check()
	if s == nil {
		return k.begin(at)
	}
	k.beginScan(s)
	return false
}

func (k *modelWorker) beginScan(s *scan) {
	k.asked++
	k.scan, k.early = s, nil
	if k.choose(2) == 0 {
		a := k.answer(s)
		k.early = &a
	}
}

func (k *modelWorker) endScan() {
	s := k.scan
	k.scan = nil
	if k.failing && k.choose(5) == 0 {
		k.request, k.scans = nil, 0
		return
	}
	a := k.early
	if a == nil {
		late := k.answer(s)
		a = &late
	}
	if s.kind != scanFirst && k.failing && k.choose(10) == 0 {
		a, k.gaveUp = &answer{took: 2 * time.Second, gaveUp: true}, k.now
	}
	if k.scans++; s.version != k.planner.version {
		k.scans--
	}
	if k.scans > 7 {
		k.t.Fatalf("a request needs more than 7 scans, now %+v", s)
	}
	k.now = k.now.Add(a.took)
	known := len(k.planner.stragglers)
	if k.planner.observe(k.now, s, *a); a.gaveUp && len(k.planner.stragglers) < known {
		k.t.Fatal("a list that gave up dropped stragglers")
	}
	k.check()
}

// begin polls or claims.
func (k *modelWorker) begin(at start) (found bool) {
	r := k.request
	k.request, k.scans = nil, 0
	if r.poll {
		if at.head == 0 {
			return at.first.found
		}
		k.asked++
		return k.exists(at)
	}
	list := k.find(at)
	for _, id := range list {
		k.rows[id].held = true
		k.claimed = append(k.claimed, ClaimedRow{ID: id})
	}
	k.planner.claimed(len(list) == k.limit)
	switch {
	case len(list) > 0:
	case at.mayHaveMore && !r.force:
		k.request = &request{began: k.now, force: true}
	default:
		k.checkNothing(at)
	}
	return len(list) > 0
}

// find lists the rows that a claim gets.
func (w *tableModel) find(at start) (list []uint64) {
	for _, s := range append(slices.Clone(at.stragglers), span{at.head, allIDs}) {
		for _, id := range w.from(s.first) {
			if id > s.last || len(list) == w.limit {
				break
			}
			if w.walked++; w.isFree(id) {
				list = append(list, id)
			}
		}
	}
	for i := range list {
		if i > 0 && list[i] <= list[i-1] {
			w.t.Fatalf("a claim asks for row %d after row %d", list[i], list[i-1])
		}
	}
	return list
}

func (w *tableModel) exists(at start) bool {
	for _, s := range append(slices.Clone(at.stragglers), span{at.head, allIDs}) {
		for _, id := range w.from(s.first) {
			if id > s.last {
				break
			}
			if st := w.rows[id].state; st == committed || st == deleting {
				return true
			}
		}
	}
	return false
}

// checkNothing checks that a claim without rows left out no row that the planner could have found.
func (w *tableModel) checkNothing(at start) {
	if w.planner.slow {
		at.stragglers = w.planner.stragglers
	} else {
		at.head = 0
	}
	if list := w.find(at); len(list) > 0 {
		w.t.Fatalf("a claim found nothing, but row %d exists", list[0])
	}
}

// settle ends a claim and settles its first n rows.
func (k *modelWorker) settle(n int) {
	rows := k.claimed
	k.claimed = nil
	var gone []uint64
	for i, r := range rows {
		settled := i < n
		k.free(r.ID, settled)
		if settled {
			gone = append(gone, r.ID)
		}
	}
	if n == 0 {
		return
	}
	k.planner.settled(k.now, rows, gone)
	k.check()
}

// abandon ends the running request without an answer.
func (k *modelWorker) abandon() {
	k.settle(0)
	k.request, k.scan, k.scans = nil, nil, 0
}

// finish ends a request.
func (k *modelWorker) finish(r request) (found bool) {
	k.request = &r
	for k.request != nil || k.scan != nil {
		if k.scan != nil {
			k.endScan()
		} else {
			found = k.plan()
		}
	}
	return found
}

func (k *modelWorker) poll() bool { return k.finish(request{began: k.now, poll: true}) }

// claimAndSettle returns how many rows it settled.
func (k *modelWorker) claimAndSettle() int {
	k.finish(request{began: k.now})
	n := len(k.claimed)
	if n > 0 {
		k.settle(n)
	}
	return n
}

// check checks the invariants of a planner.
func (w *tableModel) check() {
	p := w.planner
	end := uint64(0)
	for _, s := range p.stragglers {
		if s.first > s.last || s.first < end || s.last >= p.head {
			w.t.Fatalf("stragglers %v below %d", p.stragglers, p.head)
		}
		end = s.last + 1
	}
	if len(p.stragglers) > maxStragglers || len(p.passages) > 40 || !p.slow && p.stragglers != nil {
		w.t.Fatalf("%d stragglers, %d passages, slow: %t", len(p.stragglers), len(p.passages), p.slow)
	}
}
