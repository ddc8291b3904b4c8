package worker

import (
	"context"
	"log/slog"
	"time"

	"github.com/unstale/unstale/internal/store"
)

// lockRowsOnce is how many rows of locks a worker looks at on each schedule: a larger table takes
// several.
const lockRowsOnce = 100_000

// A lockWalk is how far this worker has looked for old rows of locks. Of cron's goroutine, which
// runs one at a time.
type lockWalk struct {
	rows      *store.LockRows
	retention time.Duration
	inOutage  func() bool
	metrics   *metrics
	log       *slog.Logger

	walk   store.LockWalk
	failed bool // logged
}

func (l *lockWalk) run(ctx context.Context) {
	n, err := l.rows.ExpireLocks(ctx, &l.walk, l.retention, lockRowsOnce)
	l.metrics.lockRows.Add(float64(n))
	switch {
	case ctx.Err() != nil || err != nil && l.inOutage():
	case err != nil && !l.failed:
		l.failed = true
		l.log.Warn("rows of locks stay longer than their retention; tried again on schedule", "error", err,
			"cure", "if a right is missing, GRANT SELECT, DELETE ON cache_outbox_locks to the worker's account; docs/accounts.md lists the grants")
	case err == nil && l.failed:
		l.failed = false
		l.log.Info("old rows of locks are removed again")
	case n > 0:
		l.log.Debug("old rows of locks deleted", "rows", n)
	}
}
