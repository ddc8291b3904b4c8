package cache

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/protocol"
)

const (
	// reportInterval is how long a report waits for further messages.
	reportInterval = time.Second
	// maxReports is how many reports wait: each is of the messages of one epoch without a gap.
	maxReports = 64
	// reportPause is how long no report is sent after a refusal: each one creates an entry in the
	// ACL log of Redis.
	reportPause = time.Minute
)

var errReportPause = errors.New("redis has refused recent reports")

// A reporter records in Redis which messages this process has received. The receiver never waits
// for it: a message that does not fit is dropped and counted. A nil reporter does nothing.
type reporter struct {
	process string
	redis   *backend
	reads   *readCounts
	total   atomic.Uint64 // messages that were dropped
	refusal refusal       // used by report alone

	mu      sync.Mutex
	waiting []protocol.Report
	dropped uint64 // messages, since the latest report that Redis took
}

func newReporter(config Config, b *backend, reads *readCounts) *reporter {
	return &reporter{process: config.Memory.Process, redis: b, reads: reads,
		refusal: refusal{logger: config.Logger, subject: "evictions", rule: "+xadd %W~" + protocol.ReportKey}}
}

// heard records a message whose keys were evicted. A heartbeat belongs to the report of the message
// before it, and a message without a number to none.
func (r *reporter) heard(m *protocol.Message) {
	if r == nil || m.Epoch == "" || m.Seq == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.waiting {
		w := &r.waiting[i]
		if w.Epoch == m.Epoch && w.First <= m.Seq && m.Seq <= w.Last+1 {
			w.Last = max(w.Last, m.Seq)
			return
		}
	}
	switch {
	case len(m.Keys)+len(m.Patterns) == 0:
	case len(r.waiting) == maxReports:
		r.drop(1)
	default:
		r.waiting = append(r.waiting, protocol.Report{Process: r.process, Epoch: m.Epoch, First: m.Seq, Last: m.Seq})
	}
}

// drop counts messages that no report contains. The caller holds mu.
func (r *reporter) drop(messages uint64) {
	r.dropped += messages
	r.total.Add(messages)
}

// report sends what waits, and counts what Redis did not take.
func (r *reporter) report(ctx context.Context) {
	r.mu.Lock()
	reports := r.waiting
	r.waiting = nil
	if len(reports) > 0 {
		reports[0].Dropped, r.dropped = r.dropped, 0
	}
	r.mu.Unlock()
	if len(reports) == 0 {
		return
	}
	versions := strings.Join(r.reads.versions(), ",")
	for i := range reports {
		reports[i].Reads = versions
	}
	faults := r.sendReports(ctx, reports)
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, fault := range faults {
		if fault != nil {
			r.dropped += reports[i].Dropped // which is in the total already
			r.drop(reports[i].Last - reports[i].First + 1)
		}
	}
}

// sendReports sends one pipeline. It returns the error of each report, nil for those that Redis
// accepted.
func (r *reporter) sendReports(ctx context.Context, reports []protocol.Report) []error {
	if r.refusal.lasts() {
		return slices.Repeat([]error{errReportPause}, len(reports))
	}
	cmds, err := send(ctx, r.redis, "report", func(ctx context.Context) ([]redis.Cmder, error) {
		return r.redis.client.Pipelined(ctx, func(p redis.Pipeliner) error {
			for _, report := range reports {
				p.XAdd(ctx, &redis.XAddArgs{Stream: protocol.ReportKey, MaxLen: protocol.MaxReports, Approx: true, Values: report.Fields()})
			}
			return nil
		})
	})
	r.refusal.logOnce(err)
	return faultsOf(cmds, len(reports), err)
}

// dropCount returns how many messages were dropped since New.
func (r *reporter) dropCount() uint64 {
	if r == nil {
		return 0
	}
	return r.total.Load()
}

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

func (p *popularity) sample(key string) {
	if p != nil && rand.Uint32()%popularSample == 0 {
		p.countKey(key)
	}
}

// countKey implements the frequent-items algorithm of Misra and Gries: a key with more than one in
// popularCounted of the reads keeps a count, no matter how many other keys there are.
func (p *popularity) countKey(key string) {
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

// sendCounts adds the counts to the set. If Redis does not take them, they are lost.
func (p *popularity) sendCounts(ctx context.Context) {
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
	p.refusal.logOnce(err)
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
		cmds, err := c.redis.pipelined(ctx, askFirst, func(p redis.Pipeliner) error {
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
