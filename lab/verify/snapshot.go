package verify

import (
	"context"
	"database/sql"
	"sync"
	"time"
)

// oldView is the transaction of the planted loader.
var oldView struct {
	sync.Mutex
	tx    *sql.Tx
	since time.Time
}

// snapshot reads a version of up to three seconds ago: a user's bug that no cache can prevent.
func (l *loader) snapshot(ctx context.Context, key int) (version uint64, err error) {
	oldView.Lock()
	defer oldView.Unlock()
	if oldView.tx != nil && time.Since(oldView.since) > 3*time.Second {
		_ = oldView.tx.Rollback() // it has only read
		oldView.tx = nil
	}
	if oldView.tx == nil {
		if oldView.tx, err = l.db.BeginTx(context.Background(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead}); err != nil {
			return 0, err
		}
		oldView.since = time.Now()
	}
	err = oldView.tx.QueryRowContext(ctx, selectVersion, l.id(key)).Scan(&version)
	return version, err
}
