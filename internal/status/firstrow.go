package status

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/unstale/unstale/internal/output"
	"github.com/unstale/unstale/internal/session"
	"github.com/unstale/unstale/internal/store"
)

// First returns the Status to compare the next one with. If both show the same first row, that is
// the earlier one.
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

// seen returns how long the first row has been seen waiting, 0 if it was seen only once.
func (j judge) seen() time.Duration {
	if !sameFirst(j.before, j.s) {
		return 0
	}
	return max(j.s.At.Sub(j.before.At), 0)
}

// oldest returns how long a row has waited, at least.
func (j judge) oldest() time.Duration { return max(j.s.OldestAge, j.seen()) }

// lockedFor is the age at which a row cannot be part of a worker's current batch, which takes at
// most four seconds.
const lockedFor = 5 * time.Second

// locked: a row is visible and was not claimed, although a worker has claimed everything since.
func (j judge) locked() (list []Cause) {
	holder, cure := j.holder()
	if j.lockedDue() {
		list = append(list, Cause{"locked_delayed", Stale, j.ago(j.s.Overdue),
			fmt.Sprintf("delayed row %d (%s) is due, and workers pass it over: %s", j.s.FirstDue.ID, j.s.FirstDue.Entity, holder), cure})
	}
	if !j.lockedFirst() {
		if len(list) == 0 && j.held() != nil {
			age, _ := j.waiting()
			what, _, _ := strings.Cut(firstLine(j.held().StallError), "; ")
			list = append(list, Cause{"locked", Stale, j.ago(age), "worker " + j.held().Name + " reports: " + what, endTransaction})
		}
		return list
	}
	return append([]Cause{{"locked", Stale, j.ago(j.oldest()),
		fmt.Sprintf("row %d (%s) waits, and workers pass it over: %s", j.s.First.ID, j.s.First.Entity, holder), cure}}, list...)
}

// holder describes the session that has rows locked, as far as workers report it, and the fix.
func (j judge) holder() (what, cure string) {
	if hung := j.fleet().some(isIn(session.StateHung)); len(hung) > 0 {
		return "worker " + hung[0].Name + " has it locked, whose COMMIT does not return: " + firstLine(hung[0].Error), "docs/operations.md#rows-make-no-progress"
	}
	if away := j.fleet().some(func(w *store.WorkerNote) bool { return w.Lives() && slices.Contains(session.States(), w.State) }); len(away) > 0 {
		return "worker " + away[0].Name + " may have it locked, which is kept from working: " + firstLine(away[0].Error), "do not end its transaction; docs/operations.md#outages"
	}
	return "a session has it locked, such as a long transaction", endTransaction
}

// endTransaction is the fix for a lock. Finding its holder may need another account than the
// operator's.
const endTransaction = "end that transaction, which an account with PROCESS can find, unless it is a worker's: docs/operations.md#a-row-is-held"

// lockedFirst reports whether the first row was seen twice and has waited longer than a batch
// takes, as far as known, although workers have claimed rows since.
func (j judge) lockedFirst() bool {
	return j.passes() && sameFirst(j.before, j.s) && (j.oldest() > lockedFor || j.s.Ahead != nil && j.seen() >= grace)
}

// lockedDue reports the same for the first delayed row that is due. Workers claim those before
// other rows.
func (j judge) lockedDue() bool {
	return j.passes() && j.before != nil && same(j.before.FirstDue, j.s.FirstDue) && j.s.Overdue > lockedFor
}

// held returns a worker that has found rows locked by another session, or nil.
func (j judge) held() *store.WorkerNote {
	if _, waits := j.waiting(); !waits {
		return nil
	}
	for i := range j.s.Workers {
		if w := &j.s.Workers[i]; w.Works() && w.Stalled == store.StalledHeld {
			return w
		}
	}
	return nil
}

// passes reports whether an old row must be locked, since workers claim rows and skip it.
func (j judge) passes() bool {
	return j.fleet().drained() && (j.held() != nil || len(j.fleet().heavy()) == 0)
}

// ahead: the created_at of a row is in the future, so its age is unknown.
func (j judge) ahead() []Cause {
	r := j.s.Ahead
	if r == nil || -r.Age <= grace {
		return nil
	}
	return []Cause{{"created_ahead", Unknown, time.Time{},
		fmt.Sprintf("the created_at of row %d (%s) lies %s ahead of the database's clock, so how long rows wait is unknown", r.ID, r.Entity, output.Short(-r.Age)),
		"insert rows without created_at; unstale doctor --check clocks"}}
}
