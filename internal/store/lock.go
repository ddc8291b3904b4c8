package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// A SweepLock allows one process at a time to sweep. It is the lock on a row of
// cache_outbox_sweeper, held by a transaction that does nothing else. The server frees the lock as
// soon as the holder's connection is gone, and after ten seconds if the holder is frozen: see
// Check. The transaction has no snapshot (READ COMMITTED), so it does not block purging. Not safe
// for concurrent use.
type SweepLock struct{ tx *sql.Tx }

// Contract for all: an exclusive lock on one row by primary key that is never written, or none.
// None of them waits for a lock, except makeSweepLockSQL, which runs only if the row is missing.
const (
	takeSweepLockSQL  = "SELECT worker FROM cache_outbox_sweeper WHERE name = 'lead' FOR UPDATE SKIP LOCKED"
	haveSweepLockSQL  = "SELECT worker FROM cache_outbox_sweeper WHERE name = 'lead'"
	makeSweepLockSQL  = "INSERT IGNORE INTO cache_outbox_sweeper (name, worker) VALUES ('lead', '')"
	checkSweepLockSQL = "DO 0"
)

// TrySweepLock acquires the sweep lock, or returns nil if another process holds it.
func (t *Sweeps) TrySweepLock(ctx context.Context) (*SweepLock, error) {
	lock, err := t.trySweepLock(ctx)
	if lock == nil && err == nil {
		// Either another process holds the lock, or its row does not exist yet.
		row := ""
		if err = t.db.Side.GetContext(ctx, &row, haveSweepLockSQL); errors.Is(err, sql.ErrNoRows) {
			if err = t.db.Exec(ctx, makeSweepLockSQL); err == nil {
				lock, err = t.trySweepLock(ctx)
			}
		}
	}
	if err != nil {
		return nil, fmt.Errorf("take the sweep lock: %w", err)
	}
	return lock, nil
}

func (t *Sweeps) trySweepLock(ctx context.Context) (*SweepLock, error) {
	limited, cancel := context.WithTimeout(ctx, t.db.Config.StatementTimeout)
	defer cancel()
	// The transaction outlives both contexts: a sweep lock ends with Release or with the
	// connection.
	tx, err := t.db.Side.DB.BeginTx(context.WithoutCancel(ctx), nil)
	if err != nil {
		return nil, err
	}
	row := ""
	if err := tx.QueryRowContext(limited, takeSweepLockSQL).Scan(&row); err != nil {
		_ = tx.Rollback() // err has the cause; the server rolls back in any case
		if errors.Is(err, sql.ErrNoRows) {
			return nil, nil
		}
		return nil, err
	}
	return &SweepLock{tx}, nil
}

// Check returns an error if the lock is lost, which happens if its connection is lost. Call it at
// least every 5 s; otherwise the server assumes that the holder is frozen.
func (l *SweepLock) Check(ctx context.Context) error {
	if _, err := l.tx.ExecContext(ctx, checkSweepLockSQL); err != nil {
		return fmt.Errorf("lost the sweep lock: %w", err)
	}
	return nil
}

// Release releases the lock. If the server does not respond, closing the connection frees the lock.
func (l *SweepLock) Release() {
	_ = l.tx.Rollback() // the transaction has no writes
}
