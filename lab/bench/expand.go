package bench

import (
	"context"
	"fmt"
	"runtime"

	"github.com/unstale/unstale/invalidation"
)

const expandRows = 1_000_000

// expand measures rows per second through a compiled map, from decoded parameters, on one core,
// compared with the concatenation of the one resulting key.
func expand(_ context.Context, cfg Config) (*Report, error) {
	none := func(string) (string, bool) { return "", false }
	m, err := invalidation.Parse("coupons", []byte(couponMap), none)
	if err != nil {
		return nil, err
	}
	n := expandRows / cfg.Scale
	ids := make([]string, 1000)
	for i := range ids {
		_, ids[i], _ = coupon(i)
	}
	bytes := 0 // so that nothing is optimized away
	var before, after runtime.MemStats
	allocations := 0.0
	kinds := []func() error{
		func() error {
			for i := range n {
				plan, err := m.Expand(invalidation.Row{Entity: "coupon", ID: ids[i%len(ids)]}, nil)
				if err != nil {
					return err
				}
				bytes += len(plan.Keys[0])
			}
			return nil
		},
		func() error {
			for i := range n {
				keys := []string{"zahraah:prod:coupon:" + ids[i%len(ids)]}
				bytes += len(keys[0])
			}
			return nil
		},
	}
	rates := make([][]float64, len(kinds))
	for run := range cfg.Runs {
		fmt.Fprintf(cfg.Progress, "run %d of %d\n", run+1, cfg.Runs)
		for kind, do := range kinds {
			runtime.ReadMemStats(&before)
			seconds, err := timed(do)
			if err != nil {
				return nil, err
			}
			rates[kind] = append(rates[kind], float64(n)/seconds)
			if kind == 0 {
				runtime.ReadMemStats(&after)
				allocations = float64(after.Mallocs-before.Mallocs) / float64(n)
			}
		}
	}
	return &Report{Ours: median(rates[0]), Floor: median(rates[1]), Unit: "rows/s", Machine: ThisMachine(), Details: map[string]any{
		"allocations_per_row": allocations, "key_bytes": bytes,
	}}, nil
}
