package cache

import (
	"sync/atomic"
	"time"
)

// A gate holds the generation of values that L1 can return, and the reason if it returns none. The
// caller guards all fields except the atomic ones and watch.
type gate struct {
	open    atomic.Uint64 // the generation to give out, or 0
	current atomic.Uint64 // the generation of new values
	doubts  atomic.Uint64 // how often something may have been missed

	opened bool  // by the hearing, and possibly shut since
	why    error // for being closed
	late   error // the invalidation is behind, while it is open
	ended  bool  // it never opens again
}

// renew begins a new generation. A gate that was shut stays shut.
func (g *gate) renew(open bool) {
	before, next := g.open.Load(), g.current.Add(1)
	switch {
	case !open:
		g.open.Store(0)
	case !g.opened:
		g.open.Store(next)
	case before != 0:
		g.open.CompareAndSwap(before, next)
	}
	g.opened = open
}

// obey applies a verdict, and opens the gate if the verdict requires it. It reports whether L1 must
// be emptied.
func (g *gate) obey(v verdict) (empty bool) {
	g.why, g.late = v.why, v.late
	if v.empty || g.opened && !v.open {
		return true
	}
	if v.open && !g.opened {
		g.open.Store(g.current.Load())
		g.opened = true
	}
	return false
}

// healthy returns why nothing is given out, or how far the invalidation is behind, or nil.
func (g *gate) healthy() error {
	switch {
	case g.open.Load() != 0:
		return g.late
	case g.opened:
		return errShut
	}
	return g.why
}

// wasShut reports whether watch has shut the gate since it opened.
func (g *gate) wasShut() bool { return g.opened && g.open.Load() == 0 }

// watch shuts the gate while an arrival in the backlog is late, until the backlog is closed. It
// takes no mutex that an eviction holds.
func (g *gate) watch(b *backlog) {
	ticker := time.NewTicker(watchStep)
	defer ticker.Stop()
	for {
		select {
		case <-b.closed:
			return
		case <-ticker.C:
			if b.late(time.Now()) {
				g.open.Store(0)
			}
		}
	}
}
