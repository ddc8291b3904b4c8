package status

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/unstale/unstale/internal/output"
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

// SecondLook is how long to wait between two looks: see [Doubtful].
const SecondLook = time.Second

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
		return v.Causes[0].text("STALE", v.At)
	case v.Level == Unknown:
		return v.Causes[0].text("unknown", v.At)
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
		lines = append(lines, c.text(map[Level]string{Stale: "STALE too", Unknown: "unknown too", Fresh: "note"}[c.Level], v.At))
	}
	return lines
}

func (c Cause) text(word string, now time.Time) string {
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

// count formats a number of things. Above MaxExactCount it is "more than".
func count(n int, thing string) string {
	switch {
	case n == 1:
		return "1 " + thing
	case n > store.MaxExactCount:
		return fmt.Sprintf("more than %d %ss", store.MaxExactCount, thing)
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// firstLine returns an error's first line, since each cause is printed on one line.
func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}
