package keyspace

import (
	"context"
	"time"
)

// A SweepResult says what a pass found and did, up to its error if it has one.
type SweepResult struct {
	Progress

	// Position is the place at the pass' end: see Survived.
	Position Position

	// Patterns are the patterns in the order of first appearance.
	Patterns []PatternResult
}

// Progress says how far a pass is.
type Progress struct {
	Scanned  int64 // names that the scans returned, a name that was returned twice counted twice
	Total    int64 // names that there were when the scans began; 0 if Redis doesn't tell (DBSIZE)
	Unlinked int64 // names that Redis removed, leases included; too few where an answer got lost

	// Again counts the masters that were scanned once more, since they failed
	// over, or had got slots, while the pass was under way.
	Again int
}

// A PatternResult says what came of one pattern.
type PatternResult struct {
	Pattern string
	// Matched counts the keys that were found, by themselves or by their
	// lease. A key that several patterns match counts for the first of them.
	Matched int64
	// Err is a *Refusal where the pattern is no glob, or for the first key that
	// Redis refused to remove. Nil: everything that was found is gone.
	Err error
}

// progressInterval is the time between two calls of a pass' watch.
const progressInterval = time.Second

// Sweep makes one pass over every master, side by side, and unlinks what
// matches any of patterns, with its lease. A lease alone is unlinked where the
// key that it belongs to matches: a reader may be about to fill it. It takes no
// more than Options.SweepShare of Redis' time, which it has together with other
// sweeps and sets that are under way.
//
// A pass finds every key that exists from its beginning to its end, also where
// slots move from one master to another meanwhile, or a master fails over. What
// is stored meanwhile, by a reader who loaded before the change for example, it
// may miss: sweep again when the longest lease has run out. It publishes
// nothing.
//
// Watch, if not nil, is told at the beginning and then once a second how far
// the pass is, by one goroutine at a time; the pass waits for it.
//
// The error is an *Outage or a *Loss; the pass is then to be made again from
// the start, which is harmless. That includes a lost connection to a single
// server: behind the next one may be another, where a cursor means nothing.
func (k *Keyspace) Sweep(ctx context.Context, patterns []string, watch func(Progress)) (SweepResult, error) {
	defer k.busy()()
	p := newSweep(k, patterns, watch)
	if p.isIdle() {
		return p.result, nil
	}
	err := p.writeBeacon(ctx) // the pass' first
	if err == nil {
		err = p.run(ctx)
	}
	if err == nil {
		err = p.writeBeacon(ctx)
	}
	p.result.Position = p.tally.position
	return p.result, err
}
