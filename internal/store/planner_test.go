package store

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// A row is claimed soon after it can be claimed and errors have ended. No claim asks for a row
// twice, and the planner's memory stays small. This holds regardless of transactions, other
// workers, purge, errors and the machine.
func TestPlanner(t *testing.T) {
	t.Parallel()
	schedules := uint64(300)
	if testing.Short() {
		schedules = 100
	}
	for seed := range schedules {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { explore(t, rand.New(rand.NewPCG(seed, 11)).IntN) })
	}
}

func FuzzPlanner(f *testing.F) {
	r := rand.NewChaCha8([32]byte{})
	for range 10 {
		choices := make([]byte, 2000)
		_, _ = r.Read(choices) // never fails
		f.Add(choices)
	}
	f.Fuzz(func(t *testing.T, choices []byte) {
		explore(t, func(n int) int {
			if len(choices) == 0 {
				return 0
			}
			chosen := int(choices[0]) % n
			choices = choices[1:]
			return chosen
		})
	})
}

// explore runs one schedule: random steps, a quiet time after which all rows must be claimed, then
// both again.
func explore(t *testing.T, choose func(int) int) {
	w := newTableModel(t, choose)
	for range 4 {
		w.disturb(20 + choose(150))
		w.settleDown()
		w.idle()
	}
}

// A drain does not pass the rows that it has deleted repeatedly, and still finds late commits.
func TestPlannerDrains(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ quick, rtt time.Duration }{
		{quickScan, time.Millisecond / 5}, {quickScan, 8 * time.Millisecond}, {-time.Hour, time.Millisecond / 5},
	} {
		w := newTableModel(t, func(int) int { return 0 })
		w.planner.quick, w.rtt = c.quick, c.rtt
		const rows = 20_000
		late, backlog := &transaction{}, &transaction{}
		w.reserve(late, 1, 1)
		w.reserve(backlog, rows, 1)
		w.insert(late)
		w.insert(backlog)
		w.end(backlog, true)
		w.limit = 100
		for batch := range rows/w.limit + 1 {
			w.now = w.now.Add(time.Millisecond)
			w.workers[0].claimAndSettle()
			switch {
			case batch == 50:
				w.end(late, true)
			case batch == 120 && w.isFree(late.ids[0]):
				t.Errorf("%v: a late commit was not found within 70 claims", c)
			}
		}
		if n := w.claimable(); n > 0 || w.walked > 3*rows {
			t.Errorf("%v: claims of %d rows read %d entries, and %d are left", c, rows, w.walked, n)
		}
	}
}

// A row that is inserted after the head has passed its ID is found soon, without a list from the
// table's start. It is found immediately if the head passed it recently, no matter how much it
// passed before. In any case it is found within half a minute.
func TestPlannerRescans(t *testing.T) {
	t.Parallel()
	for delay, bound := range map[time.Duration]time.Duration{0: time.Second, 25 * time.Second: 8 * time.Second} {
		w := newTableModel(t, func(int) int { return 0 })
		w.planner.quick, w.cost, w.limit = -time.Hour, 10*time.Microsecond, 1000
		w.drain(20_000, &transaction{})
		for range 1000 {
			if w.planner.due[rescanAll].Sub(w.now) > 2*time.Second { // one has just ended
				break
			}
			w.run(10 * time.Millisecond)
		}
		late := &transaction{}
		w.drain(10, late)
		for until := w.now.Add(delay); w.now.Before(until); {
			w.run(50 * time.Millisecond)
		}
		w.insert(late)
		w.end(late, true)
		for until := w.now.Add(bound); w.now.Before(until); {
			w.planner.due[listStart] = w.now.Add(time.Hour)
			w.run(50 * time.Millisecond)
		}
		if w.claimable() > 0 {
			t.Errorf("the row was not found within %v", bound)
		}
	}
}

// A claim that finds no row has rescanned the IDs that the head has skipped.
func TestPlannerLooksForWhatItSkipped(t *testing.T) {
	t.Parallel()
	w := newTableModel(t, func(int) int { return 0 })
	w.planner.quick = -time.Hour
	w.drain(10, &transaction{})
	late, other := &transaction{}, &transaction{}
	w.reserve(late, 1, 1)
	w.reserve(other, 1, 1)
	w.insert(late)
	w.insert(other)
	w.end(other, true)
	for range 2 {
		if n := w.workers[0].claimAndSettle(); n != 1 {
			t.Errorf("claimed %d rows, wanted 1", n)
		}
		if len(w.open) == 0 && w.rows[late.ids[0]].state == inserted {
			w.end(late, true)
		}
	}
}

// The next claim gets the rows that a claim held and did not settle, even if rows behind them were
// settled.
func TestPlannerKeepsWhatWasNotSettled(t *testing.T) {
	t.Parallel()
	for _, quick := range []time.Duration{quickScan, -time.Hour} {
		w := newTableModel(t, func(int) int { return 0 })
		w.planner.quick, w.limit = quick, 10
		w.drain(100, &transaction{})
		tx := &transaction{}
		w.reserve(tx, 20, 1)
		w.insert(tx)
		w.end(tx, true)
		k := w.workers[0]
		k.finish(request{began: w.now})
		k.settle(4)
		for _, id := range tx.ids[7:10] { // by another worker
			w.free(id, true)
		}
		k.finish(request{began: w.now})
		if k.claimed[0].ID != tx.ids[4] {
			t.Errorf("quick %v: claimed from row %d, wanted %d", quick, k.claimed[0].ID, tx.ids[4])
		}
	}
}

// A transaction of more rows than a list has holds the head back, and is claimed when it commits.
func TestPlannerAndALargeTransaction(t *testing.T) {
	t.Parallel()
	w := newTableModel(t, func(int) int { return 0 })
	w.planner.quick, w.limit = -time.Hour, 1000
	w.drain(10, &transaction{})
	large := &transaction{}
	w.reserve(large, maxListed+2000, 1)
	w.insert(large)
	for range 20 {
		w.drain(10, &transaction{})
	}
	if head := w.planner.head; head != large.ids[maxListed] {
		t.Errorf("the head is %d, wanted %d", head, large.ids[maxListed])
	}
	w.end(large, true)
	for range 20 {
		w.run(50 * time.Millisecond)
	}
	if n := w.claimable(); n > 0 {
		t.Errorf("%d rows were not claimed", n)
	}
}

// Rescans survive an outage: only a rescan that succeeded drops the IDs that the head has passed.
func TestPlannerRescansAfterAnOutage(t *testing.T) {
	t.Parallel()
	w := newTableModel(t, func(int) int { return 0 })
	w.planner.quick = -time.Hour
	late := &transaction{}
	w.drain(10, late)
	w.now = w.now.Add(2 * rescanLife)
	w.insert(late)
	w.end(late, true)
	w.planner.due[listStart] = w.now.Add(time.Hour)
	s, _ := w.planner.plan(request{began: w.now})
	w.planner.observe(w.now, s, answer{took: time.Second, gaveUp: true})
	w.run(listShare * time.Second)
	if w.claimable() > 0 {
		t.Error("the row was not found")
	}
}

// No list covers the IDs that the head passed before scans became slow, so they are rescanned as
// well.
func TestPlannerRescansWhatWasPassedBefore(t *testing.T) {
	t.Parallel()
	w := newTableModel(t, func(int) int { return 0 })
	late := &transaction{}
	w.drain(10, late)
	w.planner.quick = -time.Hour
	for range 4 {
		w.drain(10, &transaction{})
	}
	w.insert(late)
	w.end(late, true)
	w.planner.due[listStart] = w.now.Add(time.Hour)
	for range 20 {
		w.run(50 * time.Millisecond)
	}
	if !w.planner.slow || w.claimable() > 0 {
		t.Errorf("slow: %t, the row was not found", w.planner.slow)
	}
}

// A long round trip does not count as a slow scan: all except a few polls are one statement.
func TestPlannerKnowsTheRoundTrip(t *testing.T) {
	t.Parallel()
	for rtt, most := range map[time.Duration]int{3 * time.Millisecond: 103, 8 * time.Millisecond: 112, 50 * time.Millisecond: 112} {
		w := newTableModel(t, func(int) int { return 0 })
		w.rtt = rtt // beyond 5 ms it needs a list per second
		for range 100 {
			w.now = w.now.Add(50 * time.Millisecond)
			w.workers[0].poll()
		}
		if w.planner.slow || w.asked > most {
			t.Errorf("%v: slow: %t, 100 polls were %d statements", rtt, w.planner.slow, w.asked)
		}
	}
}

// Claims without a preceding poll, for example after wake-ups, rely on a scan for a second. After
// that, they detect that scans are slow.
func TestPlannerReliesOnAScan(t *testing.T) {
	t.Parallel()
	w := newTableModel(t, func(int) int { return 0 })
	claims := func(n int) {
		for range n {
			tx := &transaction{}
			w.reserve(tx, 1, 1)
			w.insert(tx)
			w.end(tx, true)
			w.run(10 * time.Millisecond)
		}
	}
	if claims(200); w.asked > 3 {
		t.Errorf("200 claims in 2 s needed %d scans", w.asked)
	}
	w.cost = 10 * time.Microsecond // of 200 deleted rows each
	if claims(120); !w.planner.slow {
		t.Error("slow scans were not detected within 1.2 s")
	}
}

// An answer is ignored if another one was observed since its scan was planned.
func TestPlannerIgnoresOvertakenAnswers(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	p := &planner{quick: quickScan}
	one, _ := p.plan(request{began: now, poll: true})
	other, _ := p.plan(request{began: now, poll: true})
	p.observe(now, one, answer{first: firstRow{true, 7}})
	p.observe(now, other, answer{first: firstRow{true, 5}})
	if _, at := p.plan(request{began: now, poll: true}); at.first != (firstRow{true, 7}) {
		t.Errorf("the first row is %+v, wanted 7", at.first)
	}
}

// The machine may cause one slow scan, so it does not lead to a list.
func TestPlannerForgivesOneSlowScan(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	p := &planner{quick: quickScan}
	for _, took := range []time.Duration{20 * time.Millisecond, 0, 20 * time.Millisecond, 0} {
		now = now.Add(time.Minute)
		s, _ := p.plan(request{began: now, poll: true})
		if s.kind != scanFirst {
			t.Errorf("the planner asks for a list: %+v", s)
		}
		p.observe(now, s, answer{took: took})
	}
}
