package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/unstale/unstale/internal/doctor"
	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/sleep"
	"github.com/unstale/unstale/invalidation"
)

// reviewKeys is how many keys are reviewed.
const reviewKeys = 1_000_000

// doctorMode measures how a review of all keys affects another client: the p99 of its GETs in
// microseconds, compared with the same client on an idle Redis.
func doctorMode(ctx context.Context, cfg Config) (r *Report, err error) {
	c, err := openRedis(ctx, cfg.RedisURL)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	keys := reviewKeys / cfg.Scale
	fmt.Fprintf(cfg.Progress, "filling %d keys\n", keys)
	if err := c.fill(ctx, keys, productName); err != nil {
		return nil, err
	}
	k, err := c.keyspace(keyspace.Options{Timeout: 5 * time.Second})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, k.Close()) }()
	var m *invalidation.Map
	if cfg.Map != "" {
		if m, err = invalidation.Parse("map", []byte(cfg.Map), env); err != nil {
			return nil, err
		}
	}
	var idle, busy []percentiles
	var seconds []float64
	memory := 0.0
	for run := range cfg.Runs {
		fmt.Fprintf(cfg.Progress, "review %d of %d\n", run+1, cfg.Runs)
		p, err := c.gets(ctx, func(ctx context.Context) error { return sleep.For(ctx, 5*time.Second/time.Duration(cfg.Scale)) })
		if err != nil {
			return nil, err
		}
		idle = append(idle, p)
		watch := watchMemory()
		took := 0.0
		p, err = c.gets(ctx, func(ctx context.Context) (err error) {
			took, err = timed(func() error { return reviewAll(ctx, k.Contents, m, int64(keys)) })
			return err
		})
		memory = max(memory, watch.end())
		if err != nil {
			return nil, err
		}
		busy, seconds = append(busy, p), append(seconds, took)
	}
	ours, floor := medianOf(busy), medianOf(idle)
	return &Report{Ours: ours.P99, Floor: floor.P99, Unit: "us", Machine: ThisMachine("Redis " + c.version), Details: map[string]any{
		"keys": keys, "seconds": median(seconds), "memory_mb": memory, "get_idle_us": floor, "get_during_review_us": ours,
	}}, nil
}

// reviewAll makes a review and checks that it saw every key.
func reviewAll(ctx context.Context, c *keyspace.Contents, m *invalidation.Map, keys int64) error {
	r := doctor.NewReview(m, nil)
	w, err := c.Walk(ctx, 2*keys, r.Note)
	if err != nil {
		return err
	}
	if report := r.Report(w, nil); !w.All || w.Seen < keys || len(report.Biggest) == 0 {
		return fmt.Errorf("a review saw %d of %d keys", w.Seen, keys)
	}
	return nil
}
