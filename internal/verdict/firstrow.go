package verdict

import (
	"fmt"
	"time"

	"github.com/unstale/unstale/internal/store"
)

// First is what the next look has to compare with: of the looks that showed the same row first, the first.
func First(before *store.Status, s store.Status) *store.Status {
	if sameFirst(before, s) {
		return before
	}
	return &s
}

func sameFirst(before *store.Status, s store.Status) bool {
	return before != nil && same(before.First, s.First)
}

func same(a, b *store.WaitingRow) bool { return a != nil && b != nil && a.ID == b.ID }

// seen is for how long the first row has been seen to wait, 0 if it was seen once.
func (j judge) seen() time.Duration {
	if !sameFirst(j.before, j.s) {
		return 0
	}
	return max(j.s.At.Sub(j.before.At), 0)
}

// oldest is for how long a row waits, at least.
func (j judge) oldest() time.Duration { return max(j.s.OldestAge, j.seen()) }

// lockedFor is how old a row is that no worker can have in hand: a batch takes four seconds at most.
const lockedFor = 5 * time.Second

// locked: a row that can be read and was not claimed, though a worker has claimed everything since.
func (j judge) locked() (list []Cause) {
	holder, cure := j.holder()
	if j.lockedDue() {
		list = append(list, Cause{"locked_delayed", Stale, j.ago(j.s.Overdue),
			fmt.Sprintf("delayed row %d (%s) is due, and workers pass it over: %s", j.s.FirstDue.ID, j.s.FirstDue.Entity, holder), cure})
	}
	if !j.lockedFirst() {
		return list
	}
	return append([]Cause{{"locked", Stale, j.ago(j.oldest()),
		fmt.Sprintf("row %d (%s) waits, and workers pass it over: %s", j.s.First.ID, j.s.First.Entity, holder), cure}}, list...)
}

// holder names the session that has rows locked, as far as workers tell, and what to do about it.
func (j judge) holder() (what, cure string) {
	if hung := j.some(isIn(store.StateHung)); len(hung) > 0 {
		return "worker " + hung[0].Name + " has it locked, whose COMMIT does not return: " + firstLine(hung[0].Error), "docs/runbook.md#rows-make-no-progress"
	}
	return "a session has it locked, such as a long transaction", endTransaction
}

// endTransaction is the cure of a lock, which other accounts than the operators' may look for.
const endTransaction = "end that transaction, which an account with PROCESS can find: docs/runbook.md#a-row-is-held"

// lockedFirst reports whether the first row was seen twice, and has waited for longer than a batch takes, as far as anybody
// knows, though workers have come by.
func (j judge) lockedFirst() bool {
	return sameFirst(j.before, j.s) && (j.oldest() > lockedFor || j.s.Ahead != nil && j.seen() >= grace) && j.drained()
}

// lockedDue reports the same of the first delayed row that is due, which workers claim before the others.
func (j judge) lockedDue() bool {
	return j.before != nil && same(j.before.FirstDue, j.s.FirstDue) && j.s.Overdue > lockedFor && j.drained()
}

// drained reports whether a worker has found no more rows to claim since the oldest row was first seen, or so short
// before that the next note will tell.
func (j judge) drained() bool {
	return len(j.some(func(w *store.WorkerNote) bool { return w.Works() && w.Drained != nil && *w.Drained < lockedFor })) > 0
}

// ahead: a row says that it was created later than now, so that its age tells nothing.
func (j judge) ahead() []Cause {
	r := j.s.Ahead
	if r == nil || -r.Age <= grace {
		return nil
	}
	return []Cause{{"created_ahead", Unknown, time.Time{},
		fmt.Sprintf("the created_at of row %d (%s) lies %s ahead of the database's clock, so how long rows wait is unknown", r.ID, r.Entity, short(-r.Age)),
		"insert rows without created_at; unstale doctor --check clocks"}}
}
