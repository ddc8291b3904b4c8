package worker

import (
	"context"
	"errors"
	"log/slog"

	"github.com/unstale/unstale/internal/store"
)

// foldSchedule is how often minutes are folded, and how soon the log reports that batches are not
// counted.
const foldSchedule = "@every 1m"

// A counting keeps cache_outbox_minutes small, and reports if it cannot be written. Not safe for
// concurrent use: cron runs one task at a time.
type counting struct {
	minutes  *store.Minutes
	seen     *store.Seen
	inOutage func() bool
	log      *slog.Logger
	failed   bool // logged
}

func (c *counting) run(ctx context.Context) {
	err := errors.Join(c.minutes.Refused(), c.minutes.Fold(ctx))
	switch {
	case ctx.Err() != nil || err != nil && c.inOutage():
	case err != nil && !c.failed:
		c.failed = true
		c.log.Warn("invalidations are not counted; trying again", "error", err, "effect", "the shares that unstale status shows lack them",
			"cure", store.Grant)
	case err == nil && c.failed:
		c.failed = false
		c.log.Info("invalidations are counted again")
	}
}

// seenSchedule is how often a worker writes how many rows wait, and which entities it has settled.
const seenSchedule = "@every 2s"

// writeSeen writes what this worker has seen. The log of run has the reason if that is impossible.
func (c *counting) writeSeen(ctx context.Context) {
	if err := c.seen.Write(ctx); err != nil && ctx.Err() == nil {
		c.log.Debug("cannot write what waits", "error", err)
	}
}
