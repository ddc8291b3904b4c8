package status

import (
	"slices"
	"strings"
	"time"

	"github.com/unstale/unstale/internal/store"
)

// A judge evaluates one Status.
type judge struct {
	s      store.Status
	before *store.Status
}

// causes lists all causes: first those that keep every row waiting, then those that keep some.
func (j judge) causes() (list []Cause) {
	return slices.Concat(
		idCauses(j.s.IDsLeft), j.pause(), j.readOnly(), conflictCauses(j.s.Conflicts, j.s.ConflictsError), j.workers(), j.healing(),
		j.locked(), j.backlog(), j.sweeps(), j.delayed(), deadCauses(j.s.Dead, j.ago(j.s.DeadFor)),
		staleCauses(j.s), damagedCauses(j.s.Damaged), replayCauses(j.s.Replay, j.s.BrokenReplay), j.fleet().maps(), j.fleet().deprecated(), j.fleet().readers(j.s.Readers), j.fleet().partAway(), j.fleet().lacksRight(), differenceCauses(j.s), j.ahead(),
	)
}

// ago returns the time, by the database's clock, at which an age began. An age of 0 is unknown, and
// the time is then zero.
func (j judge) ago(age time.Duration) time.Time {
	if age <= 0 {
		return time.Time{}
	}
	return j.s.At.Add(-age)
}

// waiting reports whether anything waits for a worker, and since when.
func (j judge) waiting() (age time.Duration, waits bool) {
	return max(j.oldest(), j.s.Overdue, j.s.UnsweptFor), j.s.Waiting > 0 || j.s.Overdue > 0 || j.s.Unswept
}

// general returns a cause that keeps everything waiting. If something waits, it is stale. If not,
// the status is unknown, since no worker checks whether Redis still has all unlinks.
func (j judge) general(name string, began time.Time, what, cure string) Cause {
	if age, waits := j.waiting(); waits {
		return Cause{name, Stale, j.ago(age), what + "; " + j.what(), cure}
	}
	return Cause{name, Unknown, began, what + "; nothing waits, but nobody looks whether Redis has lost anything", cure}
}

// what describes what waits.
func (j judge) what() string {
	var parts []string
	if j.s.Waiting > 0 {
		parts = append(parts, count(j.s.Waiting, "row"))
	}
	if j.s.Overdue > 0 {
		parts = append(parts, "delayed rows that are due")
	}
	if j.s.Unswept {
		parts = append(parts, count(max(j.s.Sweeps-j.s.Settling, 1), "sweep"))
	}
	if len(parts) == 1 && strings.HasPrefix(parts[0], "1 ") {
		return parts[0] + " waits"
	}
	return strings.Join(parts, " and ") + " wait"
}

func (j judge) pause() []Cause {
	p := j.s.Pause
	if p == nil {
		return nil
	}
	what := "all workers are paused by " + p.Who
	if p.EndsAt != nil {
		what += " until " + clock(*p.EndsAt, j.s.At)
	}
	if p.Reason != "" {
		what += " (" + firstLine(p.Reason) + ")"
	}
	if p.Unrecorded {
		what += ", of which the audit has no record: anybody may have written that name"
	}
	return []Cause{j.general("paused", p.BeganAt, what, "to go on: unstale resume")}
}

// readOnly: workers cannot settle rows. If nothing waits for long, the queried server may be a
// replica.
func (j judge) readOnly() []Cause {
	age, waits := j.waiting()
	if !j.s.ReadOnly || !waits || age <= grace {
		return nil
	}
	return []Cause{{"read_only", Stale, j.ago(age), "MySQL is read-only, so workers cannot settle what they unlink; " + j.what(),
		"find out which server is the primary; if it is this one: SET GLOBAL read_only = 0; if not, leave it read-only and ask the primary"}}
}

func (j judge) healing() []Cause {
	healing := j.fleet().some(isIn(store.WorkerHealing))
	if len(healing) == 0 {
		return nil
	}
	return []Cause{{"healing", Stale, j.ago(healing[0].For), "Redis went back to older data, so removed keys are there again, and worker " + healing[0].Name + " unlinks them", "wait; its log shows the progress"}}
}

func (j judge) backlog() []Cause {
	late := time.Duration(0)
	if j.held() != nil { // which makes rows old, and not a lack of workers
		return nil
	}
	if !j.lockedFirst() {
		late = j.oldest()
	}
	if !j.lockedDue() {
		late = max(late, j.s.Overdue)
	}
	if !j.fleet().works() || j.s.Pause != nil || j.s.ReadOnly || late <= grace {
		return nil
	}
	if heavy := j.fleet().heavy(); len(heavy) > 0 {
		return []Cause{{"backlog", Stale, j.ago(late), j.what() + ", and worker " + heavy[0].Name + " processes heavy rows, a batch at a time", "wait: docs/operations.md#what-waits"}}
	}
	what, cure := ", and workers are behind", "wait, or start more workers: docs/operations.md#what-waits"
	switch {
	case j.passes() && (sameFirst(j.before, j.s) || j.before != nil && same(j.before.FirstDue, j.s.FirstDue)):
		what, cure = ", and workers find none to claim: it is in a batch, or a session has it locked", "wait, until it is known which"
	case late < 15*time.Second: // a worker reports a locked row after the claim timeout and 2 s
		cure = "wait: docs/operations.md#what-waits"
	}
	return []Cause{{"backlog", Stale, j.ago(late), j.what() + what, cure}}
}

func (j judge) sweeps() (list []Cause) {
	s := j.s
	if f := s.SweepFailure; f != nil && s.Unswept {
		list = append(list, Cause{"sweeps_fail", Stale, j.ago(s.UnsweptFor), "sweeps wait, and all fail in worker " + f.Worker + ": " + firstLine(f.Error), "docs/operations.md#sweeps"})
	}
	if s.SweepsRefused > 0 {
		list = append(list, Cause{"sweeps_refused", Stale, j.ago(s.UnsweptFor), "Redis refuses " + count(s.SweepsRefused, "sweep") + ", the last: " + firstLine(s.SweepError), "docs/operations.md#sweeps"})
	}
	if len(list) == 0 && s.Unswept && s.UnsweptFor <= 0 {
		return []Cause{{"sweeps", Unknown, time.Time{}, j.sweepsWait() + ", and since when is unknown: the database's clock was set back", "wait; unstale doctor --check clocks"}}
	}
	if len(list) > 0 || s.UnsweptFor <= grace || !j.fleet().works() {
		return list
	}
	what, cure := j.sweepsWait(), "wait; see sweeping below"
	if s.Scan == nil && s.Sets == nil {
		cure = "wait; if it lasts: docs/operations.md#sweeps"
	}
	return []Cause{{"sweeps", Stale, j.ago(s.UnsweptFor), what, cure}}
}

func (j judge) sweepsWait() string {
	return count(max(j.s.Sweeps-j.s.Settling, 1), "sweep") + " of patterns or index sets not yet carried out"
}
