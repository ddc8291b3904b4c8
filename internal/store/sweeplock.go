package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// A SweepLock is the right to sweep, which one process has at a time: the lock on a row of cache_outbox_sweeper, held
// by a transaction that does nothing else. The server frees it the moment the holder's connection is gone, and after
// ten seconds if the holder is frozen: see Check. The transaction has no snapshot (READ COMMITTED), so it does not keep
// the server from purging. Not safe for concurrent use.
type SweepLock struct{ tx *sql.Tx }

// Contract for all: an exclusive lock on one row by primary key that is never written, or none; never waits, but for
// makeSweepLockSQL, which runs only where the row is missing.
const (
	takeSweepLockSQL  = "SELECT worker FROM cache_outbox_sweeper WHERE name = 'lead' FOR UPDATE SKIP LOCKED"
	haveSweepLockSQL  = "SELECT worker FROM cache_outbox_sweeper WHERE name = 'lead'"
	makeSweepLockSQL  = "INSERT IGNORE INTO cache_outbox_sweeper (name, worker) VALUES ('lead', '')"
	checkSweepLockSQL = "DO 0"
)

// TrySweepLock takes the sweep lock, or returns nil if another process has it.
func (s *Store) TrySweepLock(ctx context.Context) (*SweepLock, error) {
	lock, err := s.trySweepLock(ctx)
	if lock == nil && err == nil {
		// Somebody has it, unless there is none yet.
		row := ""
		if err = s.side.GetContext(ctx, &row, haveSweepLockSQL); errors.Is(err, sql.ErrNoRows) {
			if err = s.exec(ctx, makeSweepLockSQL); err == nil {
				lock, err = s.trySweepLock(ctx)
			}
		}
	}
	if err != nil {
		return nil, fmt.Errorf("take the sweep lock: %w", err)
	}
	return lock, nil
}

func (s *Store) trySweepLock(ctx context.Context) (*SweepLock, error) {
	limited, cancel := context.WithTimeout(ctx, s.cfg.StatementTimeout)
	defer cancel()
	// The transaction outlives both contexts: a sweep lock ends with Release, or with the connection.
	tx, err := s.side.DB.BeginTx(context.WithoutCancel(ctx), nil)
	if err != nil {
		return nil, err
	}
	row := ""
	if err := tx.QueryRowContext(limited, takeSweepLockSQL).Scan(&row); err != nil {
		_ = tx.Rollback() // err says why; the server rolls back in any case
		if errors.Is(err, sql.ErrNoRows) {
			return nil, nil
		}
		return nil, err
	}
	return &SweepLock{tx}, nil
}

// Check returns an error if the lock is lost, which goes with its connection. Call it at least every 5 s: that keeps
// the server from taking the holder for frozen.
func (l *SweepLock) Check(ctx context.Context) error {
	if _, err := l.tx.ExecContext(ctx, checkSweepLockSQL); err != nil {
		return fmt.Errorf("lost the sweep lock: %w", err)
	}
	return nil
}

// Release gives the lock up. Where the server does not answer the connection is closed, which frees it as well.
func (l *SweepLock) Release() {
	_ = l.tx.Rollback() // there is nothing to lose
}
