// Package sleep waits as time.Sleep does, but no longer than a context lasts.
package sleep

import (
	"context"
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
