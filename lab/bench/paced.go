package bench

import (
	"context"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/unstale/unstale/internal/sleep"
)

// paced calls do for each i below n when it is due: the first immediately, then one per interval,
// regardless of earlier errors. Several goroutines share the calls, so a slow call delays no other
// while one of them is free. It returns how late each call began. Small delays do not affect the
// measurement. The first error ends everything.
func paced(ctx context.Context, every time.Duration, n, hands int, do func(ctx context.Context, i int) error) (late []time.Duration, err error) {
	group, ctx := errgroup.WithContext(ctx)
	late = make([]time.Duration, n)
	began := time.Now()
	var next atomic.Int64
	for range hands {
		group.Go(func() error {
			for {
				i := int(next.Add(1)) - 1
				if i >= n {
					return nil
				}
				due := began.Add(time.Duration(i) * every)
				if err := sleep.For(ctx, time.Until(due)); err != nil {
					return err
				}
				late[i] = time.Since(due)
				if err := do(ctx, i); err != nil {
					return err
				}
			}
		})
	}
	return late, group.Wait()
}
