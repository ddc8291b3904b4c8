package cache

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/protocol"
)

const (
	// popularSample is how many reads there are for each one that counts.
	popularSample = 16
	// popularCounted is how many keys are counted between two reports.
	popularCounted = 4096
	// popularReported is how many keys a report has.
	popularReported = pipelineMost
	popularInterval = 30 * time.Second
)

// popularRule has the permissions that an account needs for reports.
const popularRule = "+zincrby +zremrangebyrank +pexpire ~" + protocol.PopularPrefix + "*"

// A popularity counts a sample of the reads, and adds the keys with the most to a set in Redis. A
// nil popularity counts nothing.
type popularity struct {
	prefix  string
	redis   *backend
	refusal refusal

	mu     sync.Mutex
	counts map[string]int // since the latest report
}

func newPopularity(config Config, b *backend) *popularity {
	return &popularity{prefix: config.Prefix, redis: b, refusal: refusal{logger: config.Logger, subject: "popular keys", rule: popularRule}}
}

func (p *popularity) read(key string) {
	if p != nil && rand.Uint32()%popularSample == 0 {
		p.count(key)
	}
}

// count implements the frequent-items algorithm of Misra and Gries: a key with more than one in
// popularCounted of the reads keeps a count, no matter how many other keys there are.
func (p *popularity) count(key string) {
	if len(key) > protocol.MaxPopularKey {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.counts == nil {
		p.counts = map[string]int{}
	}
	if _, known := p.counts[key]; known || len(p.counts) < popularCounted {
		p.counts[key]++
		return
	}
	for other := range p.counts {
		if p.counts[other]--; p.counts[other] == 0 {
			delete(p.counts, other)
		}
	}
}

// report adds the counts to the set. If Redis does not take them, they are lost.
func (p *popularity) report(ctx context.Context) {
	p.mu.Lock()
	counts := p.counts
	p.counts = nil
	p.mu.Unlock()
	if len(counts) == 0 || p.refusal.lasts() {
		return
	}
	keys := slices.SortedFunc(maps.Keys(counts), func(a, b string) int { return cmp.Compare(counts[b], counts[a]) })
	set, _, weight := protocol.PopularAt(p.prefix, p.redis.clock.now())
	_, err := send(ctx, p.redis, "report", func(ctx context.Context) ([]redis.Cmder, error) {
		return p.redis.client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
			for _, key := range keys[:min(len(keys), popularReported)] {
				pipe.ZIncrBy(ctx, set, weight*float64(counts[key]), key)
			}
			pipe.ZRemRangeByRank(ctx, set, 0, -protocol.MostPopular-1)
			pipe.PExpire(ctx, set, protocol.PopularLife)
			return nil
		})
	})
	p.refusal.note(err)
}

// Popular returns the keys that processes with Config.Popularity and the same Config.Prefix have
// read most, at most n, the hottest first: input for Warm after a restart. A read counts half as
// much after an hour. Redis keeps up to 5,000 keys. The account needs
// +zrange %R~unstale:popular:*. Readers write the keys, so a loader must parse them as any other
// input. The error comes from Redis or from the context, or is ErrClosed. With package cachetest it
// returns none.
func (c *Cache) Popular(ctx context.Context, n int) ([]string, error) {
	switch {
	case c.run.life.Err() != nil:
		return nil, ErrClosed
	case n <= 0 || c.redis.clock.keeper != nil:
		return nil, nil
	}
	now, before, _ := protocol.PopularAt(c.config.Prefix, c.redis.clock.now())
	scores, err := send(ctx, c.redis, "popular", func(ctx context.Context) (map[string]float64, error) {
		cmds, err := c.redis.pipelined(ctx, func(p redis.Pipeliner) error {
			for _, set := range []string{before, now} {
				p.ZRangeArgsWithScores(ctx, redis.ZRangeArgs{Key: set, Start: 0, Stop: n - 1, Rev: true})
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		scores := map[string]float64{}
		for i, cmd := range cmds {
			for _, z := range cmd.(*redis.ZSliceCmd).Val() {
				scores[z.Member.(string)] += z.Score * [...]float64{protocol.PopularDecay, 1}[i]
			}
		}
		return scores, nil
	})
	if redis.HasErrorPrefix(err, "NOPERM") {
		err = fmt.Errorf("an account needs +zrange %%R~%s*: %w", protocol.PopularPrefix, err)
	}
	if err != nil {
		return nil, wrapped("popular", err)
	}
	keys := slices.SortedFunc(maps.Keys(scores), func(a, b string) int {
		return cmp.Or(cmp.Compare(scores[b], scores[a]), cmp.Compare(a, b))
	})
	return keys[:min(n, len(keys))], nil
}
