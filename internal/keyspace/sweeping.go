package keyspace

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/match"
)

const (
	// failoverPatience is how long a sweep waits for a master's successor: longer than a Cluster takes to elect one at
	// its default node timeout of 15 s.
	failoverPatience = 30 * time.Second
	failoverPause    = 200 * time.Millisecond
)

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

// A patience waits for a failover, and not for what no failover cures.
type patience struct {
	limit time.Duration
	since time.Time // of the first of the errors that came one after the other
}

func (k *Keyspace) newPatience() *patience { return &patience{limit: k.patience} }

// reset notes that something went well.
func (p *patience) reset() { p.since = time.Time{} }

// wait waits a little after an error, or returns it.
func (p *patience) wait(ctx context.Context, err error) error {
	if p.since.IsZero() {
		p.since = time.Now()
	}
	if !mayFailOver(err) || time.Since(p.since) >= p.limit {
		return err
	}
	timer := time.NewTimer(failoverPause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return outage(ctx.Err())
	case <-timer.C:
		return nil
	}
}
