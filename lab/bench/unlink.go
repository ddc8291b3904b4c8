package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/keyspace"
)

const (
	unlinkKeys  = 10_000 // of one call
	unlinkCalls = 20     // of each kind in a run
)

// unlink measures keys per second through keyspace, with their leases and a beacon, compared with a
// raw pipeline of the same names. Keys and leases exist.
func unlink(ctx context.Context, cfg Config) (r *Report, err error) {
	c, err := openRedis(ctx, cfg.RedisURL)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	k, err := c.keyspace(keyspace.Options{Timeout: 5 * time.Second, BeaconTTL: time.Hour})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, k.Close()) }()
	n := unlinkKeys / cfg.Scale
	targets := make([]keyspace.Target, n)
	for i := range targets {
		targets[i].Key = productName(i)
	}
	leaseName := func(i int) string { return "lock:fill:{" + productName(i) + "}" }
	kinds := []func() error{
		func() error {
			done, err := k.Unlinker.Unlink(ctx, targets)
			if err == nil && len(done.Failures) > 0 {
				err = done.Failures[0].Err
			}
			return err
		},
		func() error {
			_, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
				const part = 250
				for from := 0; from < n; from += part {
					names := make([]string, 0, 2*part)
					for i := from; i < min(from+part, n); i++ {
						names = append(names, leaseName(i), targets[i].Key)
					}
					p.Unlink(ctx, names...)
				}
				return nil
			})
			return err
		},
	}
	rates := make([][]float64, len(kinds))
	for run := range cfg.Runs {
		fmt.Fprintf(cfg.Progress, "run %d of %d\n", run+1, cfg.Runs)
		sum := make([]float64, len(kinds))
		for range unlinkCalls {
			for kind, do := range kinds {
				if err := errors.Join(c.fill(ctx, n, productName), c.fill(ctx, n, leaseName)); err != nil {
					return nil, err
				}
				seconds, err := timed(do)
				if err != nil {
					return nil, err
				}
				sum[kind] += seconds
			}
		}
		for kind := range kinds {
			rates[kind] = append(rates[kind], float64(unlinkCalls*n)/sum[kind])
		}
	}
	return &Report{Ours: median(rates[0]), Floor: median(rates[1]), Unit: "keys/s", Machine: ThisMachine("Redis " + c.version),
		Details: map[string]any{"keys_of_a_call": n}}, nil
}
