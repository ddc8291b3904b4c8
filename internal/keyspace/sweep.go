package keyspace

import (
	"context"
	"time"
)

// A SweepResult says what a sweep found and did, up to its error if it has one.
type SweepResult struct {
	Progress

	// Position is the place at the sweep's end: see Survived.
	Position Position

	// Patterns are the patterns in the order of first appearance.
	Patterns []PatternResult
}

// Progress says how far a sweep is.
type Progress struct {
	Scanned  int64 // names that the scans returned, a name that was returned twice counted twice
	Total    int64 // names that there were when the scans began; 0 if Redis does not tell (DBSIZE)
	Unlinked int64 // names that Redis removed, leases included; too few where an answer got lost

	// Again counts the masters that were scanned once more, since they failed over, or had got slots, while the sweep
	// was under way.
	Again int
}

// A PatternResult says what came of one pattern.
type PatternResult struct {
	Pattern string
	// Matched counts the keys that were found, by themselves or by their lease. A key that several patterns match
	// counts for the first of them.
	Matched int64
	// Err is a *Refusal where the pattern is not a glob, or for the first key that Redis refused to remove. Nil:
	// everything that was found is gone.
	Err error
}

// progressInterval is the time between two calls of a sweep's watch.
const progressInterval = time.Second

// Sweep scans every master once, side by side, and unlinks what matches any of patterns, with its lease. A lease alone
// is unlinked where the key that it belongs to matches: a reader may be about to fill it. It takes no more than
// Options.SweepShare of Redis' time, which it has together with other sweeps and sets that are under way.
//
// A sweep finds every key that exists from its beginning to its end, also where slots move from one master to another
// meanwhile, or a master fails over. What is stored meanwhile, by a reader who loaded before the change for example, it
// may miss: sweep again when the longest lease has run out. It publishes nothing.
//
// Watch, if not nil, is told at the beginning and then once a second how far the sweep is, by one goroutine at a time;
// the sweep waits for it.
//
// The error is an *Outage or a *Loss; the sweep is then to be made again from the start, which is harmless. That
// includes a lost connection to a single server: behind the next one may be another, where a cursor means nothing.
func (k *Keyspace) Sweep(ctx context.Context, patterns []string, watch func(Progress)) (SweepResult, error) {
	defer k.busy()()
	p := newSweep(k, patterns, watch)
	if p.isIdle() {
		return p.result, nil
	}
	err := p.writeBeacon(ctx) // the sweep's first
	if err == nil {
		err = p.run(ctx)
	}
	if err == nil {
		err = p.writeBeacon(ctx)
	}
	p.result.Position = p.tally.position
	return p.result, err
}
