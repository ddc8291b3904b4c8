package worker

import (
	"context"
	"log/slog"

	"github.com/unstale/unstale/internal/store"
)

// clockSchedule is how often a worker checks whether the database's clock was set back.
const clockSchedule = "@every 5s"

// A clockBack makes retries and sweeps due in time after the database's clock was set back. Not
// safe for concurrent use: cron runs one task at a time.
type clockBack struct {
	queue    *store.Queue
	sweeps   *store.Sweeps
	inOutage func() bool
	log      *slog.Logger
	pending  bool
}

func (c *clockBack) run(ctx context.Context) {
	c.pending = c.queue.ClockSetBack() || c.pending
	if !c.pending {
		return
	}
	retries, err := c.queue.AdvanceRetries(ctx, longestRetry*5/4) // the longest after jitter
	swept := int64(0)
	if err == nil {
		swept, err = c.sweeps.Advance(ctx)
	}
	c.pending = err != nil
	switch {
	case err != nil && ctx.Err() == nil && !c.inOutage():
		c.log.Warn("retries and sweeps may wait for the database's clock, which was set back; trying again", "error", err)
	case retries > 0 || swept > 0:
		c.log.Warn("the database's clock was set back; retries and sweeps do not wait for it", "retries", retries, "sweeps", swept)
	}
}
