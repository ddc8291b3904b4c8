package keyspace

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// An Estimate is the number of keys that patterns match, from a sample.
type Estimate struct {
	Total   int64   // names that there are
	Sampled int64   // names that were looked at; all of them where it is no less than Total
	Matched []int64 // names that each pattern matches, about
}

// Estimate checks about sample names, evenly on all masters, and returns how many names each of
// patterns matches. Redis returns names in the order of their hashes, so the first ones are a
// random sample. In a Cluster, Redis 8 returns them slot by slot, so a hash tag that many names
// share may weigh too much or too little. It takes at most Options.SweepShare of Redis time and
// changes nothing. The error is an *Outage, or a *Refusal of a pattern that is not a glob.
func (c *Contents) Estimate(ctx context.Context, patterns []string, sample int64) (Estimate, error) {
	results := make([]PatternResult, len(patterns))
	for i, p := range patterns {
		results[i].Pattern = p
	}
	m := matcher(results)
	for _, r := range results {
		if r.Err != nil {
			return Estimate{}, r.Err
		}
	}
	e := Estimate{Matched: make([]int64, len(patterns))}
	masters, err := c.nodes.masters(ctx)
	if err == nil {
		err = c.expectSingle(ctx)
	}
	if err != nil {
		return e, err
	}
	for _, master := range masters {
		if err := c.estimate(ctx, master, m, max(sample/int64(len(masters)), 1), &e); err != nil {
			return e, err
		}
	}
	return e, nil
}

// estimate adds what one master has.
func (c *Contents) estimate(ctx context.Context, master *redis.Client, m *Matcher, sample int64, e *Estimate) error {
	s := &scan{pace: c.budget.newPace()}
	client := s.client(master.Options())
	defer client.Close()
	conn := client.Conn()
	defer conn.Close()
	size, err := conn.DBSize(ctx).Result()
	if err != nil {
		return c.nodes.outage(ctx, fmt.Errorf("count the keys: %w", err))
	}
	matched := make([]int64, len(e.Matched))
	seen := int64(0)
	for cursor, first := uint64(0), true; (cursor != 0 || first) && seen < sample; first = false {
		var names []string
		names, cursor, err = conn.Scan(ctx, cursor, "", s.pace.count()).Result()
		if err != nil {
			return c.nodes.outage(ctx, err)
		}
		s.pace.scanned(s.watch.last())
		for _, name := range names {
			for _, i := range m.All(name) {
				matched[i]++
			}
		}
		seen += int64(len(names))
		if err := s.pace.rest(ctx); err != nil {
			return c.nodes.outage(ctx, err)
		}
	}
	e.Total += size
	e.Sampled += seen
	for i, n := range matched {
		if seen < size { // otherwise all of them were looked at
			n = int64(float64(n) * float64(size) / float64(seen))
		}
		e.Matched[i] += n
	}
	return nil
}
