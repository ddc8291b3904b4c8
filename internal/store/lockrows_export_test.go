package store

import (
	"context"
	"time"
)

// RemoveLocks returns what ExpireLocks does with what it has read.
func (t *LockRows) RemoveLocks(ctx context.Context, first, last string, retention time.Duration) (int64, error) {
	return t.removeLocks(ctx, first, last, retention)
}
