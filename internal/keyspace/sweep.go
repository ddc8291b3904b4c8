package keyspace

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/match"
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

// A sweep is one Sweep under way.
type sweep struct {
	keyspace *Keyspace
	matcher  *match.Matcher
	watch    func(Progress)

	mu      sync.Mutex // of what follows: masters are scanned side by side
	tally   tally      // for its own pipelines alone
	result  SweepResult
	watched time.Time // when watch was last called
}

func newSweep(k *Keyspace, patterns []string, watch func(Progress)) *sweep {
	p := &sweep{keyspace: k, watch: watch, tally: tally{writer: &k.sweeps}}
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
func matcher(patterns []PatternResult) *match.Matcher {
	texts := make([]string, len(patterns))
	for i := range patterns {
		texts[i] = patterns[i].Pattern
	}
	return match.New(texts, func(i int, err error) { patterns[i].Err = &Refusal{Key: texts[i], Err: err} })
}

// isIdle reports whether there is no pattern to sweep.
func (p *sweep) isIdle() bool {
	return !slices.ContainsFunc(p.result.Patterns, func(r PatternResult) bool { return r.Err == nil })
}

// run scans whatever there is to scan.
func (p *sweep) run(ctx context.Context) error {
	switch {
	case p.keyspace.cluster != nil:
		return p.cluster(ctx)
	case p.keyspace.failsOver:
		return p.sentinel(ctx)
	}
	return p.scan(ctx, p.keyspace.client.(*redis.Client).Options())
}

// sentinel scans the master, and its successor from the start where it fails over meanwhile.
func (p *sweep) sentinel(ctx context.Context) error {
	options := p.keyspace.client.(*redis.Client).Options()
	for patience := p.keyspace.newPatience(); ; p.again(1) {
		err := p.scan(ctx, options)
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
	return p.tally.send(ctx, p.keyspace, nil)
}

// unlink removes units that a scan found.
func (p *sweep) unlink(ctx context.Context, units []unit) error {
	t, err := p.keyspace.unlink(ctx, &p.keyspace.sweeps, units)
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

// expect notes how many names a scan will meet.
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
	if p.watch != nil && time.Since(p.watched) >= p.keyspace.watchEvery {
		p.watch(p.result.Progress)
		p.watched = time.Now()
	}
}

// again notes that masters are scanned once more.
func (p *sweep) again(masters int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.result.Again += masters
}
