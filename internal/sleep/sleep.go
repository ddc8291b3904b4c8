// Package sleep waits as time.Sleep does, but no longer than a context lasts, and runs what is
// periodic.
package sleep

import (
	"context"
	"math/rand/v2"
	"time"
)

// For waits for d, or returns why ctx ended.
func For(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// Every calls f now, and then once per period until ctx ends. After a call that took longer than a
// period, the next one begins immediately.
func Every(ctx context.Context, period time.Duration, f func(context.Context)) {
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	for ctx.Err() == nil {
		f(ctx)
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
}

// Repeat calls f until ctx ends. Each call returns the wait before the next one.
func Repeat(ctx context.Context, f func(context.Context) time.Duration) {
	for ctx.Err() == nil {
		_ = For(ctx, f(ctx))
	}
}

// Jitter spreads d by share either way, so that workers do not poll in step.
func Jitter(d time.Duration, share float64) time.Duration {
	return d + time.Duration((2*rand.Float64()-1)*share*float64(d))
}
