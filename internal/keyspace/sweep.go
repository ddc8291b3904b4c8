package keyspace

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// A SweepResult is the result of a sweep, up to its error if it has one.
type SweepResult struct {
	Progress

	// Position is the place at the sweep's end: see Survived.
	Position Position

	// Patterns are the patterns in the order of first appearance.
	Patterns []PatternResult
}

// Progress is the progress of a sweep.
type Progress struct {
	Scanned  int64 // names that the scans returned, a name that was returned twice counted twice
	Total    int64 // names that there were when the scans began; 0 if Redis does not tell (DBSIZE)
	Unlinked int64 // names that Redis removed, leases included; too few where an answer got lost

	// Again counts the masters that were scanned again, since they failed over, or have slots that
	// moved, during the sweep.
	Again int
}

// A PatternResult is the result of one pattern.
type PatternResult struct {
	Pattern string
	// Matched counts the keys that were found, by themselves or by their lease. A key that several
	// patterns match counts for the first of them.
	Matched int64
	// Err is a *Refusal where the pattern is not a glob, or for the first key that Redis refused to
	// remove. Nil: everything that was found is gone.
	Err error
}

// progressInterval is the time between two calls of a sweep's watch.
const progressInterval = time.Second

// A Sweeper unlinks the keys that match patterns.
type Sweeper struct {
	nodes    *Nodes
	beacons  *Beacons
	unlinker *Unlinker
	budget   *budget

	failsOver  bool // Sentinel provides the address of the master
	watchEvery time.Duration
	patience   time.Duration // how long a sweep waits for a failover
}

// Sweep scans every master once, in parallel, and unlinks names that match any of patterns, with
// their leases. It unlinks a lease alone if its key matches: a reader may be about to fill it. It
// takes at most Options.SweepShare of Redis time, together with other running sweeps and sets.
//
// A sweep finds every key that exists from its beginning to its end, even if slots move to another
// master meanwhile, or a master fails over. It may miss a key that is stored meanwhile, for example
// by a reader that loaded before the change: sweep again when the longest lease has ended. It
// publishes nothing.
//
// Sweep calls watch, if it is not nil, at the beginning and then once per second with the progress,
// from one goroutine at a time, and waits for it.
//
// The error is an *Outage or a *Loss. The caller must then repeat the sweep from the start, which
// is harmless. That includes a lost connection to a single server: the next connection may lead to
// another server, where a cursor means nothing.
func (s *Sweeper) Sweep(ctx context.Context, patterns []string, watch func(Progress)) (SweepResult, error) {
	defer s.budget.busy()()
	run := newSweep(s, patterns, watch)
	if run.isIdle() {
		return run.result, nil
	}
	err := run.writeBeacon(ctx) // the sweep's first
	if err == nil {
		err = run.run(ctx)
	}
	if err == nil {
		err = run.writeBeacon(ctx)
	}
	run.result.Position = run.tally.position
	return run.result, err
}

// A sweep is one Sweep under way.
type sweep struct {
	sweeper *Sweeper
	matcher *Matcher
	watch   func(Progress)

	mu      sync.Mutex // of the fields below: masters are scanned in parallel
	tally   tally      // for its own pipelines alone
	result  SweepResult
	watched time.Time // when watch was last called
}

func newSweep(s *Sweeper, patterns []string, watch func(Progress)) *sweep {
	p := &sweep{sweeper: s, watch: watch, tally: tally{writer: &s.beacons.sweeps}}
	seen := map[string]bool{}
	for _, text := range patterns {
		if !seen[text] {
			seen[text] = true
			p.result.Patterns = append(p.result.Patterns, PatternResult{Pattern: text})
		}
	}
	p.matcher = matcher(p.result.Patterns)
	return p
}

// matcher reads patterns. One that is not a glob is left out, with the reason in its result.
func matcher(patterns []PatternResult) *Matcher {
	texts := make([]string, len(patterns))
	for i := range patterns {
		texts[i] = patterns[i].Pattern
	}
	return NewMatcher(texts, func(i int, err error) { patterns[i].Err = &Refusal{Key: texts[i], Err: err} })
}

// isIdle reports whether there is no pattern to sweep.
func (p *sweep) isIdle() bool {
	return !slices.ContainsFunc(p.result.Patterns, func(r PatternResult) bool { return r.Err == nil })
}

// run scans all masters.
func (p *sweep) run(ctx context.Context) error {
	switch {
	case p.sweeper.nodes.cluster != nil:
		return p.cluster(ctx)
	case p.sweeper.failsOver:
		return p.sentinel(ctx)
	}
	return p.scan(ctx, p.sweeper.nodes.client.(*redis.Client).Options(), nil)
}

// sentinel scans the master, and its successor from the start where it fails over meanwhile.
func (p *sweep) sentinel(ctx context.Context) error {
	options := p.sweeper.nodes.client.(*redis.Client).Options()
	for patience := p.sweeper.newPatience(); ; p.again(1) {
		err := p.scan(ctx, options, nil)
		if err == nil {
			return nil
		}
		if err := patience.wait(ctx, err); err != nil {
			return err
		}
	}
}

// writeBeacon writes the sweep's beacon.
func (p *sweep) writeBeacon(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.tally.send(ctx, p.sweeper.beacons, nil)
}

// unlink removes units that a scan found.
func (p *sweep) unlink(ctx context.Context, units []unit) error {
	t, err := p.sweeper.unlinker.unlink(ctx, &p.sweeper.beacons.sweeps, units)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.result.Unlinked += t.removed
	for _, r := range t.refused {
		if of := &p.result.Patterns[r.index]; of.Err == nil {
			of.Err = r.failure()
		}
	}
	if err == nil && len(t.away) > 0 {
		err = t.away[0].err
	}
	if err != nil {
		return err
	}
	for _, u := range units {
		p.result.Patterns[u.index].Matched++
	}
	return p.tally.follow(t.position)
}

// expect records how many names a scan will meet.
func (p *sweep) expect(names int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.result.Total += names
}

// scanned notes names that a scan has met.
func (p *sweep) scanned(names int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.result.Scanned += int64(names)
	if p.watch != nil && time.Since(p.watched) >= p.sweeper.watchEvery {
		p.watch(p.result.Progress)
		p.watched = time.Now()
	}
}

// again records that masters are scanned again.
func (p *sweep) again(masters int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.result.Again += masters
}
