package keyspace

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/match"
)

// An Estimate says how many keys patterns match, judged by a sample.
type Estimate struct {
	Total   int64   // names that there are
	Sampled int64   // names that were looked at; all of them where it is no less than Total
	Matched []int64 // names that each pattern matches, about
}

// Estimate looks at some sample names, evenly at all masters, and returns how many names each of patterns matches.
// Redis hands names out in the order of their hashes, so the first ones are as good as any; in Cluster, Redis 8 hands
// them out slot by slot, so that a hash tag which many names share weighs too much or too little there. It takes no
// more than Options.SweepShare of Redis' time and changes nothing. The error is an *Outage, or a *Refusal of a pattern
// that is not a glob.
func (k *Keyspace) Estimate(ctx context.Context, patterns []string, sample int64) (Estimate, error) {
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
	masters, err := k.masters(ctx)
	if err == nil {
		err = k.expectSingle(ctx)
	}
	if err != nil {
		return e, err
	}
	for _, master := range masters {
		if err := k.estimate(ctx, master, m, max(sample/int64(len(masters)), 1), &e); err != nil {
			return e, err
		}
	}
	return e, nil
}

// expectSingle finds a node of a Cluster behind a URL that knows of none: it redirects whoever asks for keys of all
// slots, and answers a SCAN as if its own were all.
func (k *Keyspace) expectSingle(ctx context.Context) error {
	if k.cluster != nil {
		return nil
	}
	const some = 20 // of which a node with half of the slots has all once in a million times
	commands := make([]redis.Cmder, some)
	for i := range commands {
		commands[i] = redis.NewStringCmd(ctx, "get", fmt.Sprint(beaconPrefix, i))
	}
	if err := k.exec(ctx, k.client, commands); err != nil {
		return err
	}
	for _, c := range commands {
		if o := outage(c.Err()); c.Err() != nil && o.State == StateMoving {
			return k.outage(ctx, o)
		}
	}
	return nil
}

// estimate adds what one master has.
func (k *Keyspace) estimate(ctx context.Context, master *redis.Client, m *match.Matcher, sample int64, e *Estimate) error {
	s := &scan{pace: k.newPace()}
	client := s.client(master.Options())
	defer client.Close()
	conn := client.Conn()
	defer conn.Close()
	size, err := conn.DBSize(ctx).Result()
	if err != nil {
		return k.outage(ctx, fmt.Errorf("count the keys: %w", err))
	}
	matched := make([]int64, len(e.Matched))
	seen := int64(0)
	for cursor, first := uint64(0), true; (cursor != 0 || first) && seen < sample; first = false {
		var names []string
		names, cursor, err = conn.Scan(ctx, cursor, "", s.pace.count()).Result()
		if err != nil {
			return k.outage(ctx, err)
		}
		s.pace.scanned(s.watch.last())
		for _, name := range names {
			for _, i := range m.All(name) {
				matched[i]++
			}
		}
		seen += int64(len(names))
		if err := s.pace.rest(ctx); err != nil {
			return k.outage(ctx, err)
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
