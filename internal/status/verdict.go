// Package status is the only judge of whether anything is stale, since when, why, and what to do
// about it: for `unstale status`, `doctor` and the console. A [Looker] reads the tables, and what
// workers publish in Redis about themselves, which is known while MySQL refuses writes, too. [Judge]
// queries no server.
//
// If the tables do not prove the answer, the status is "unknown" and never "fresh". "Fresh"
// requires a worker whose record is at most ten seconds old and that works, so it has compared
// Redis with the journal.
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

// A Level is one of three answers, in ascending order of severity.
type Level int

// The levels.
const (
	Fresh   Level = iota // nothing is stale
	Unknown              // the tables do not show whether anything is stale
	Stale                // something is, or may be until its TTL
)

// String returns the level in a word, as in JSON.
func (l Level) String() string { return [...]string{"fresh", "unknown", "stale"}[l] }

// MarshalText implements encoding.TextMarshaler.
func (l Level) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (l *Level) UnmarshalText(text []byte) error {
	for level := Fresh; level <= Stale; level++ {
		if level.String() == string(text) {
			*l = level
			return nil
		}
	}
	return fmt.Errorf("%q: must be fresh, unknown or stale", text)
}

// A Cause is one reason for the overall status, or additional information (Fresh).
type Cause struct {
	Name  string // of a closed set, for scripts
	Level Level
	Since time.Time // UTC, the database's clock; zero if unknown
	What  string
	Cure  string // what to do, "" for nothing
}

// A Verdict is the overall status at one time.
type Verdict struct {
	Level  Level
	At     time.Time     // UTC, the database's clock
	Upto   time.Duration // if fresh: rows inserted longer ago than this are unlinked
	Causes []Cause       // the most severe first; within a level, the first to fix
}

// grace is how long a row may wait for a working worker. It is longer than a poll interval plus a
// batch in normal operation.
const grace = time.Second

// secondLook is how long to wait between two looks: see [Doubtful].
const secondLook = time.Second

// Judge returns the overall status for s. before is an earlier Status, or nil. A row that is first in
// both was already committed by the time of before. Its age alone does not prove that: the age
// begins with the insert, and created_at may have been written by hand. See [First].
func Judge(s store.Status, before *store.Status) Verdict {
	j := judge{s: s, before: before}
	v := Verdict{At: s.At, Upto: s.OldestAge, Causes: j.causes()}
	if s.Ahead != nil {
		v.Upto = max(v.Upto, grace)
	}
	slices.SortStableFunc(v.Causes, func(a, b Cause) int { return int(b.Level - a.Level) })
	if len(v.Causes) > 0 {
		v.Level = v.Causes[0].Level
	}
	return v
}

// Doubtful reports whether a second look would give a better answer: a row is old but may have been
// committed just now, or its age is unknown.
func Doubtful(s store.Status) bool {
	return (s.OldestAge > grace || s.Overdue > grace || s.Ahead != nil) && slices.ContainsFunc(s.Workers, func(w store.WorkerNote) bool { return w.Works() })
}

// String returns the first line of `unstale status`.
func (v Verdict) String() string {
	switch {
	case v.Level == Stale:
		return v.Causes[0].sentence("STALE", v.At)
	case v.Level == Unknown:
		return v.Causes[0].sentence("unknown", v.At)
	case v.Upto > 0:
		return fmt.Sprintf("nothing is stale: all rows up to %s ago are unlinked", output.Short(v.Upto))
	}
	return "nothing is stale: all rows that were committed by " + clock(v.At, v.At) + " are unlinked"
}

// Others returns lines about the causes that String leaves out.
func (v Verdict) Others() (lines []string) {
	rest := v.Causes
	if v.Level != Fresh {
		rest = rest[1:]
	}
	for _, c := range rest {
		lines = append(lines, c.sentence(map[Level]string{Stale: "STALE too", Unknown: "unknown too", Fresh: "note"}[c.Level], v.At))
	}
	return lines
}

func (c Cause) sentence(word string, now time.Time) string {
	text := word
	if !c.Since.IsZero() {
		text += " since " + clock(c.Since, now) + " (" + output.Short(now.Sub(c.Since)) + ")"
	}
	text += ": " + c.What
	if c.Cure != "" {
		text += "; " + c.Cure
	}
	return text
}

// clock formats a UTC time, with its date unless that is today.
func clock(t, now time.Time) string {
	if t.Format(time.DateOnly) == now.Format(time.DateOnly) {
		return t.Format("15:04:05") + " UTC"
	}
	return t.Format("2006-01-02 15:04:05") + " UTC"
}

// Exact formats a number of things that [store.Status] may have cut: above MaxExactCount it is
// "more than".
func Exact(n int, thing string) string {
	if n > store.MaxExactCount {
		return "more than " + output.Things(store.MaxExactCount, thing)
	}
	return output.Things(n, thing)
}

// firstLine returns an error's first line, since each cause is printed on one line.
func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}

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
	held := j.fleet().some(func(w *store.WorkerNote) bool { return w.Works() && w.Stalled == store.StalledHeld })
	if _, waits := j.waiting(); !waits || len(held) == 0 {
		return nil
	}
	return &held[0]
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
