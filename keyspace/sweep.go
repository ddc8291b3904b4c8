package keyspace

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// scanCount is how many buckets one SCAN looks at: some 300 microseconds of
// Redis' time.
const scanCount = 1000

// A SweepResult says what a pass found and did, up to its error if it has one.
type SweepResult struct {
	Scanned  int64 // names that the scan returned, a name that it returned twice counted twice
	Unlinked int64 // names that Redis removed, leases included; too few where an answer got lost

	// Beat is the place at the pass' end: see Survived.
	Beat Beat

	// Patterns are the patterns in the order of first appearance.
	Patterns []PatternResult
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

// Sweep makes one pass over every master, one after the other, and unlinks
// what matches any of patterns, with its lease. A lease alone is unlinked where
// the key that it belongs to matches: a reader may be about to fill it.
//
// A pass finds every key that exists from its beginning to its end. What is
// stored meanwhile, by a reader who loaded before the change for example, it
// may miss: sweep again when the longest lease has run out. It publishes
// nothing.
//
// The error is an *Outage or a *Loss; the pass is then to be made again from
// the start, which is harmless. That includes a lost connection: the server behind the
// next one may be another, where a cursor means nothing.
func (k *Keyspace) Sweep(ctx context.Context, patterns []string) (SweepResult, error) {
	var result SweepResult
	seen := map[string]bool{}
	for _, p := range patterns {
		if !seen[p] {
			seen[p] = true
			result.Patterns = append(result.Patterns, PatternResult{Pattern: p})
		}
	}
	m := compile(result.Patterns)
	if m.good == 0 {
		return result, nil
	}
	masters, err := k.masters(ctx)
	if err != nil {
		return result, err
	}
	t := tally{lane: &k.sweeps}
	if err := t.send(ctx, k, nil); err != nil { // the pass' first beat
		return result, err
	}
	for _, master := range masters {
		if err := k.sweepNode(ctx, master, m, &t, &result); err != nil {
			return result, err
		}
	}
	err = t.send(ctx, k, nil)
	result.Beat = t.beat
	return result, err
}

// sweepNode makes the pass over one master. It keeps to one connection.
func (k *Keyspace) sweepNode(ctx context.Context, master *redis.Client, m *matcher, pass *tally, result *SweepResult) error {
	conn := master.Conn()
	defer conn.Close()
	var cursor uint64
	for {
		if err := ctx.Err(); err != nil {
			return k.outage(ctx, err)
		}
		names, next, err := conn.Scan(ctx, cursor, "", scanCount).Result()
		if err != nil {
			return k.outage(ctx, err)
		}
		if err := k.sweepPage(ctx, names, m, pass, result); err != nil {
			return err
		}
		if next == 0 {
			return nil
		}
		cursor = next
	}
}

// sweepPage unlinks what matches of one page of a scan.
func (k *Keyspace) sweepPage(ctx context.Context, names []string, m *matcher, pass *tally, result *SweepResult) error {
	result.Scanned += int64(len(names))
	var units []unit
	taken := map[string]bool{}
	for _, name := range names {
		if u, ok := m.unit(name); ok && !taken[u.key] {
			taken[u.key] = true
			units = append(units, u)
			result.Patterns[u.index].Matched++
		}
	}
	t, err := k.unlinkPage(ctx, pass, units)
	result.Unlinked += t.removed
	for _, r := range t.refused {
		if p := &result.Patterns[r.index]; p.Err == nil {
			p.Err = r.refusal()
		}
	}
	return err
}

// unlinkPage unlinks what one page of a pass found.
func (k *Keyspace) unlinkPage(ctx context.Context, pass *tally, units []unit) (tally, error) {
	t, err := k.unlink(ctx, pass.lane, units)
	if err == nil {
		err = pass.follow(t.beat)
	}
	return t, err
}
