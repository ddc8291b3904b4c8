// Package sleep waits as time.Sleep does, but no longer than a context lasts.
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

// Jitter spreads d by share either way, so that workers do not poll in step.
func Jitter(d time.Duration, share float64) time.Duration {
	return d + time.Duration((2*rand.Float64()-1)*share*float64(d))
}
