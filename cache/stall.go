package cache

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	stallStep  = 10 * time.Millisecond
	leastStall = 10 * time.Millisecond // shorter ones are not recorded
)

// errStalled is why a command timed out without any evidence against Redis.
var errStalled = errors.New("this process did not run")

// A stallWatch records when this process did not run: without a CPU, stopped, or during garbage
// collection. It watches while commands are in flight. Safe for concurrent use.
type stallWatch struct {
	launch func(func()) bool // nil: nothing is recorded
	life   context.Context
	keep   time.Duration // no command lasts longer while this process runs

	flying atomic.Int64 // commands
	runs   atomic.Bool

	mu     sync.Mutex
	last   time.Time // the latest tick
	stalls []stall   // oldest first
}

type stall struct{ from, to time.Time }

// start is called before each command.
func (w *stallWatch) start(now time.Time) {
	if w.launch == nil {
		return
	}
	w.flying.Add(1)
	if !w.runs.Load() && !w.runs.Swap(true) {
		w.tick(now, false)
		w.launch(w.watch) // after Close no command needs it
	}
}

// end is called after each command.
func (w *stallWatch) end() {
	if w.launch != nil {
		w.flying.Add(-1)
	}
}

// watch ticks until no command is in flight.
func (w *stallWatch) watch() {
	ticker := time.NewTicker(stallStep)
	defer ticker.Stop()
	for {
		select {
		case <-w.life.Done():
			return
		case <-ticker.C:
		}
		w.tick(time.Now(), true)
		if w.flying.Load() > 0 {
			continue
		}
		w.runs.Store(false)
		if w.flying.Load() == 0 || w.runs.Swap(true) {
			return
		}
	}
}

// tick records the stall since the last tick, if it watched since then.
func (w *stallWatch) tick(now time.Time, watched bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s := w.current(now); watched && s.to.Sub(s.from) >= leastStall {
		w.stalls = slices.DeleteFunc(w.stalls, func(old stall) bool { return s.from.Sub(old.to) > w.keep })
		w.stalls = append(w.stalls, s)
	}
	w.last = now
}

// current returns the stall that lasts until now.
func (w *stallWatch) current(now time.Time) stall { return stall{w.last.Add(stallStep), now} }

// stalled returns for how long, between two moments, the process did not run.
func (w *stallWatch) stalled(from, until time.Time) (total time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	overlap := func(s stall) {
		if s.from.Before(from) {
			s.from = from
		}
		if s.to.After(until) {
			s.to = until
		}
		total += max(s.to.Sub(s.from), 0)
	}
	for _, s := range w.stalls {
		overlap(s)
	}
	// This goroutine may run before watch does.
	if s := w.current(time.Now()); w.runs.Load() && s.to.Sub(s.from) >= leastStall {
		overlap(s)
	}
	return total
}
