package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// A Lead is the right to sweep, which one process has at a time: the lock on a row of cache_outbox_sweeper, held by a
// transaction that does nothing else. The server frees it the moment the holder's connection is gone, and after ten
// seconds if the holder is frozen: see Held. The transaction has no snapshot (READ COMMITTED), so it does not keep the
// server from purging. Not safe for concurrent use.
type Lead struct{ tx *sql.Tx }

// Contract for all: an exclusive lock on one row by primary key that is never written, or none; never waits, but for
// makeLeadSQL, which runs only where the row is missing.
const (
	takeLeadSQL = "SELECT worker FROM cache_outbox_sweeper WHERE name = 'lead' FOR UPDATE SKIP LOCKED"
	haveLeadSQL = "SELECT worker FROM cache_outbox_sweeper WHERE name = 'lead'"
	makeLeadSQL = "INSERT IGNORE INTO cache_outbox_sweeper (name, worker) VALUES ('lead', '')"
	holdLeadSQL = "DO 0"
)

// TryLead takes the lead, or returns nil if another process has it.
func (s *Store) TryLead(ctx context.Context) (*Lead, error) {
	lead, err := s.tryLead(ctx)
	if lead == nil && err == nil {
		// Somebody has it, unless there is none yet.
		row := ""
		if err = s.side.GetContext(ctx, &row, haveLeadSQL); errors.Is(err, sql.ErrNoRows) {
			if err = s.exec(ctx, makeLeadSQL); err == nil {
				lead, err = s.tryLead(ctx)
			}
		}
	}
	if err != nil {
		return nil, fmt.Errorf("take the lead of sweeps: %w", err)
	}
	return lead, nil
}

func (s *Store) tryLead(ctx context.Context) (*Lead, error) {
	limited, cancel := context.WithTimeout(ctx, s.cfg.StatementTimeout)
	defer cancel()
	// The transaction outlives both contexts: a lead ends with Drop, or with the connection.
	tx, err := s.side.DB.BeginTx(context.WithoutCancel(ctx), nil)
	if err != nil {
		return nil, err
	}
	row := ""
	if err := tx.QueryRowContext(limited, takeLeadSQL).Scan(&row); err != nil {
		_ = tx.Rollback() // err says why; the server rolls back in any case
		if errors.Is(err, sql.ErrNoRows) {
			return nil, nil
		}
		return nil, err
	}
	return &Lead{tx}, nil
}

// Held says whether the lead is still ours. Ask at least every 5 s: the question keeps the server from taking the
// holder for frozen. The error is that of the connection, with which the lead is lost.
func (l *Lead) Held(ctx context.Context) error {
	if _, err := l.tx.ExecContext(ctx, holdLeadSQL); err != nil {
		return fmt.Errorf("lost the lead of sweeps: %w", err)
	}
	return nil
}

// Drop gives the lead up. Where the server does not answer the connection is closed, which frees it as well.
func (l *Lead) Drop() {
	_ = l.tx.Rollback() // there is nothing to lose
}
