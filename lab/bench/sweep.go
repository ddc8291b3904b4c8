package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/unstale/unstale/internal/keyspace"
)

// The keyspace of the mode sweep: products, and one list per hundred products. Each of ten thousand
// categories has one list, so 10, 1,000 or 10,000 patterns can match exactly all lists.
const (
	sweepKeys  = 1_000_000
	sweepLists = 10_000
)

func productName(i int) string { return fmt.Sprintf("zahraah:prod:product:%d", i) }
func listName(i int) string    { return fmt.Sprintf("zahraah:prod:category:%04d:list:newest", i) }

// listPatterns returns the 10^digits patterns that together match all lists.
func listPatterns(digits int) []string {
	n := 1
	for range digits {
		n *= 10
	}
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf("zahraah:prod:category:%0*d*:list:*", digits, i)
	}
	return list
}

// A sweeping is the mode under way.
type sweeping struct {
	cfg   Config
	redis *redisServer
	fast  *keyspace.Keyspace // without a budget
	lists int
	keys  int
}

// sweep measures scans of the keyspace, in seconds.
func sweep(ctx context.Context, cfg Config) (r *Report, err error) {
	c, err := openRedis(ctx, cfg.RedisURL)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	s := &sweeping{cfg: cfg, redis: c, lists: sweepLists / cfg.Scale, keys: sweepKeys / cfg.Scale}
	s.fast, err = c.keyspace(keyspace.Options{SweepShare: 1, Timeout: 5 * time.Second, BeaconTTL: time.Hour})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.fast.Close()) }()

	fmt.Fprintf(cfg.Progress, "filling %d keys\n", s.keys)
	if err := c.fill(ctx, s.keys-s.lists, productName); err != nil {
		return nil, err
	}
	r = &Report{Unit: "s", Machine: ThisMachine("Redis " + c.version), Details: map[string]any{
		"keys": s.keys, "matching": s.lists, "patterns": 1000,
	}}
	for _, part := range []func(context.Context, *Report) error{s.scans, s.naive, s.budget, s.set} {
		if err := part(ctx, r); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// scans measures the scan for 1,000 patterns, compared with a bare SCAN, and for 10 and 10,000.
func (s *sweeping) scans(ctx context.Context, r *Report) error {
	var floor []float64
	ours := map[int][]float64{}
	memory := 0.0
	for run := range s.cfg.Runs {
		fmt.Fprintf(s.cfg.Progress, "scans %d of %d\n", run+1, s.cfg.Runs)
		for _, digits := range []int{3, 1, 4} {
			if err := s.redis.fill(ctx, s.lists, listName); err != nil {
				return err
			}
			if digits == 3 {
				took, err := timed(func() error { return s.redis.scan(ctx) })
				if err != nil {
					return err
				}
				floor = append(floor, took)
			}
			patterns := listPatterns(digits)
			watch := watchMemory()
			took, err := timed(func() error { return s.scan(ctx, s.fast.Sweeper, patterns) })
			memory = max(memory, watch.end())
			if err != nil {
				return err
			}
			ours[digits] = append(ours[digits], took)
		}
	}
	r.Ours, r.Floor = median(ours[3]), median(floor)
	r.Details["seconds_10_patterns"], r.Details["seconds_10000_patterns"] = median(ours[1]), median(ours[4])
	r.Details["ratio_10000_to_10_patterns"] = median(ours[4]) / median(ours[1])
	r.Details["memory_mb"] = memory
	return nil
}

// scan makes one scan and checks that it found everything.
func (s *sweeping) scan(ctx context.Context, sweeper *keyspace.Sweeper, patterns []string) error {
	result, err := sweeper.Sweep(ctx, patterns, nil)
	if err == nil && result.Unlinked != int64(s.lists) {
		err = fmt.Errorf("a scan unlinked %d of %d keys", result.Unlinked, s.lists)
	}
	return err
}

// naive measures the cost of ten patterns with one scan each.
func (s *sweeping) naive(ctx context.Context, r *Report) error {
	fmt.Fprintln(s.cfg.Progress, "ten patterns, a SCAN each")
	if err := s.redis.fill(ctx, s.lists, listName); err != nil {
		return err
	}
	took, err := timed(func() error {
		for _, pattern := range listPatterns(1) {
			if err := s.scanFor(ctx, pattern); err != nil {
				return err
			}
		}
		return nil
	})
	r.Details["seconds_naive_10_patterns"] = took
	return err
}

func (s *sweeping) scanFor(ctx context.Context, pattern string) error {
	for cursor, first := uint64(0), true; cursor != 0 || first; first = false {
		var names []string
		var err error
		if names, cursor, err = s.redis.Scan(ctx, cursor, pattern, 1000).Result(); err != nil {
			return err
		}
		if len(names) > 0 {
			if err := s.redis.Unlink(ctx, names...).Err(); err != nil {
				return err
			}
		}
	}
	return nil
}

// budget measures how a scan at the default share of Redis time affects another client.
func (s *sweeping) budget(ctx context.Context, r *Report) (err error) {
	fmt.Fprintln(s.cfg.Progress, "a scan at the default budget, and another client's GETs")
	k, err := s.redis.keyspace(keyspace.Options{Timeout: 5 * time.Second, BeaconTTL: time.Hour})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, k.Close()) }()
	if err := s.redis.fill(ctx, s.lists, listName); err != nil {
		return err
	}
	idle, err := s.redis.gets(ctx, func(ctx context.Context) error {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(3 * time.Second / time.Duration(s.cfg.Scale)):
			return nil
		}
	})
	if err != nil {
		return err
	}
	logged := s.redis.slowLog(ctx, 50) == nil // else the account may not
	var took float64
	busy, err := s.redis.gets(ctx, func(ctx context.Context) error {
		var err error
		took, err = timed(func() error { return s.scan(ctx, k.Sweeper, listPatterns(3)) })
		return err
	})
	if err != nil {
		return err
	}
	r.Details["budget_seconds"] = took
	r.Details["get_idle_us"], r.Details["get_during_pass_us"] = idle, busy
	if logged {
		longest, err := s.redis.slowest(ctx)
		if err != nil {
			return err
		}
		r.Details["budget_longest_us"] = longest
	}
	return nil
}

// set measures what the slow log sees of an index set with a million members, most of which are
// keys.
func (s *sweeping) set(ctx context.Context, r *Report) error {
	members := s.keys
	fmt.Fprintf(s.cfg.Progress, "an index set of %d members\n", members)
	const part = 5000
	for from := 0; from < members; from += part {
		names := make([]any, 0, part)
		for i := from; i < min(from+part, members); i++ {
			names = append(names, productName(i))
		}
		if err := s.redis.SAdd(ctx, "tag:all", names...).Err(); err != nil {
			return err
		}
	}
	logged := s.redis.slowLog(ctx, 5000) == nil
	watch := watchMemory()
	taken := int64(0)
	took, err := timed(func() error {
		t, err := s.fast.Sets.TakeSet(ctx, "tag:all", 1, func([]string) error { return nil })
		taken = t.Members
		return err
	})
	r.Details["set_memory_mb"] = watch.end()
	if err != nil {
		return err
	}
	if taken < int64(members) {
		return fmt.Errorf("took %d of %d members", taken, members)
	}
	r.Details["set_members"], r.Details["set_seconds"] = members, took
	if logged {
		longest, err := s.redis.slowest(ctx)
		if err != nil {
			return err
		}
		r.Details["set_longest_us_over_5_ms"] = longest
	}
	return nil
}
