package worker

import (
	"time"

	"github.com/unstale/unstale/internal/store"
)

// A sweepList is the sweeps that a batch asks for, each once. The zero value is empty.
type sweepList struct {
	list []store.Sweep
	at   map[sweepName]int // in list
}

type sweepName struct {
	kind store.SweepKind
	name string
}

// add adds what a change asks for.
func (l *sweepList) add(c *change) {
	for _, p := range c.plan.Patterns {
		l.ask(c, sweepName{store.SweepPattern, p})
	}
	for _, s := range c.plan.Sets {
		l.ask(c, sweepName{store.SweepSet, s})
	}
}

// missing returns how many sweeps a change asks for that the list has not.
func (l *sweepList) missing(c *change) (n int) {
	for _, p := range c.plan.Patterns {
		if _, known := l.at[sweepName{store.SweepPattern, p}]; !known {
			n++
		}
	}
	for _, s := range c.plan.Sets {
		if _, known := l.at[sweepName{store.SweepSet, s}]; !known {
			n++
		}
	}
	return n
}

// ask adds one sweep, with the longest hold of the changes that request it. Repeats are not among
// the requesting rows, since tokens do not wait for them.
func (l *sweepList) ask(c *change, n sweepName) {
	i, known := l.at[n]
	if !known {
		if l.at == nil {
			l.at = map[sweepName]int{}
		}
		i = len(l.list)
		l.at[n] = i
		l.list = append(l.list, store.Sweep{Kind: n.kind, Name: n.name})
	}
	s := &l.list[i]
	s.HoldMillis = max(s.HoldMillis, millis(c.plan.Hold))
	if !c.row.Repeated {
		s.Asked(c.row.FirstID)
	}
}

// millis returns a duration in milliseconds, rounded up.
func millis(d time.Duration) int64 { return int64((d + time.Millisecond - 1) / time.Millisecond) }
