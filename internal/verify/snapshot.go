package verify

import (
	"context"
	"database/sql"
	"sync"
	"time"
)

// oldView is a transaction in which the planted loader reads.
var oldView struct {
	sync.Mutex
	tx    *sql.Tx
	since time.Time
}

// snapshot reads a version as it was up to three seconds ago: the user's bug against which no cache helps.
func (r *reader) snapshot(ctx context.Context, key int) (version uint64, err error) {
	oldView.Lock()
	defer oldView.Unlock()
	if oldView.tx != nil && time.Since(oldView.since) > 3*time.Second {
		_ = oldView.tx.Rollback() // it has only read
		oldView.tx = nil
	}
	if oldView.tx == nil {
		if oldView.tx, err = r.db.BeginTx(context.Background(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead}); err != nil {
			return 0, err
		}
		oldView.since = time.Now()
	}
	err = oldView.tx.QueryRowContext(ctx, selectVersion, r.id(key)).Scan(&version)
	return version, err
}
