package verdict

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/unstale/unstale/internal/store"
)

// A Level is one of three answers. The order is that of their weight.
type Level int

// The levels.
const (
	Fresh   Level = iota // nothing is stale
	Unknown              // nobody can tell
	Stale                // something is, or may be until its TTL
)

// String is the level in a word, as in JSON.
func (l Level) String() string { return [...]string{"fresh", "unknown", "stale"}[l] }

// A Cause is one reason for a verdict, or something that one should know beside it (Fresh).
type Cause struct {
	Name  string // of a closed set, for scripts
	Level Level
	Since time.Time // UTC, the database's clock; zero where nobody knows
	What  string
	Cure  string // what to do, "" for nothing
}

// A Verdict is the answer for one moment.
type Verdict struct {
	Level  Level
	At     time.Time     // UTC, the database's clock
	Upto   time.Duration // of a fresh one: rows that were inserted longer ago are unlinked
	Causes []Cause       // the heaviest first, and among those of a level the one to begin with
}

// grace is how long a row may wait for a worker that works. Longer than the interval of a poll and the time of a batch
// where all is well.
const grace = time.Second

// SecondLook is how long after the first look a second one tells more: see [Doubtful].
const SecondLook = time.Second

// Of judges a Status. before is one that was read earlier, or nil: a row that both show first was committed by then, which
// its age does not tell, since that begins with the insert, or where somebody has written another time into created_at. See
// [First].
func Of(s store.Status, before *store.Status) Verdict {
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

// Doubtful reports whether a second look would tell more: a row is old, and may have been committed just now, or its age
// is not known.
func Doubtful(s store.Status) bool {
	return (s.OldestAge > grace || s.Overdue > grace || s.Ahead != nil) && slices.ContainsFunc(s.Workers, func(w store.WorkerNote) bool { return w.Works() })
}

// String is the first line of `unstale status`.
func (v Verdict) String() string {
	switch {
	case v.Level == Stale:
		return v.Causes[0].text("STALE", v.At)
	case v.Level == Unknown:
		return v.Causes[0].text("unknown", v.At)
	case v.Upto > 0:
		return fmt.Sprintf("nothing is stale: all rows up to %s ago are unlinked", short(v.Upto))
	}
	return "nothing is stale: all rows that were committed by " + clock(v.At, v.At) + " are unlinked"
}

// Others are lines about the causes that String does not tell.
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
		text += " since " + clock(c.Since, now) + " (" + short(now.Sub(c.Since)) + ")"
	}
	text += ": " + c.What
	if c.Cure != "" {
		text += "; " + c.Cure
	}
	return text
}

// clock is a time of UTC, with its day unless that is today.
func clock(t, now time.Time) string {
	if t.Format(time.DateOnly) == now.Format(time.DateOnly) {
		return t.Format("15:04:05") + " UTC"
	}
	return t.Format("2006-01-02 15:04:05") + " UTC"
}

// short is a duration in one unit, for people: 12 ms, 47 s, 3 min, 5 h, 2 d.
func short(d time.Duration) string {
	for _, u := range []struct {
		unit, most time.Duration
		name       string
	}{
		{time.Millisecond, time.Second, "ms"}, {time.Second, 2 * time.Minute, "s"},
		{time.Minute, 2 * time.Hour, "min"}, {time.Hour, 48 * time.Hour, "h"},
	} {
		if d < u.most {
			return fmt.Sprint(int64(d/u.unit), " ", u.name)
		}
	}
	return fmt.Sprint(int64(d/(24*time.Hour)), " d")
}

// count is a number of things, as far as it is counted.
func count(n int, thing string) string {
	switch {
	case n == 1:
		return "1 " + thing
	case n > store.MaxExactCount:
		return fmt.Sprintf("more than %d %ss", store.MaxExactCount, thing)
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// firstLine keeps an error's first line, since a verdict is one.
func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}
