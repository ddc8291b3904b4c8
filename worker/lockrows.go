package worker

import (
	"context"

	"github.com/unstale/unstale/internal/store"
)

// lockRowsOnce is how many rows of locks a worker looks at on each schedule: a larger table takes several.
const lockRowsOnce = 100_000

// A lockWalk is how far this worker has looked for old rows of locks. Of cron's goroutine, which runs one at a time.
type lockWalk struct {
	walk   store.LockWalk
	failed bool // told of
}

func (w *engine) expireLocks(ctx context.Context) {
	l := &w.locks
	n, err := w.store.ExpireLocks(ctx, &l.walk, w.cfg.LockRetention, lockRowsOnce)
	w.metrics.lockRows.Add(float64(n))
	switch {
	case ctx.Err() != nil || err != nil && w.health.inOutage():
	case err != nil && !l.failed:
		l.failed = true
		w.log.Warn("rows of locks stay longer than their retention; tried again on schedule", "error", err,
			"cure", "if a right is missing, GRANT SELECT, DELETE ON cache_outbox_locks to the worker's account; docs/accounts.md lists the grants")
	case err == nil && l.failed:
		l.failed = false
		w.log.Info("old rows of locks are removed again")
	case n > 0:
		w.log.Debug("old rows of locks deleted", "rows", n)
	}
}
