package store

import (
	"context"
	"database/sql"
	"fmt"
	"math"
)

// A LookupSnapshot runs lookups in the session settings of a worker, on one state of the data. It
// is for one goroutine.
type LookupSnapshot struct {
	store *Store
	tx    *sql.Tx
}

// LookupSnapshot begins a read-only transaction. It takes no lock and writes nothing. Close ends
// it.
func (s *Store) LookupSnapshot(ctx context.Context) (*LookupSnapshot, error) {
	tx, err := s.lookups.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
	if err != nil {
		return nil, fmt.Errorf("look up: %w", err)
	}
	return &LookupSnapshot{s, tx}, nil
}

// Lookup runs a lookup as [Store.Lookup] does, but one that ONLY_FULL_GROUP_BY refuses fails.
func (l *LookupSnapshot) Lookup(ctx context.Context, query string, by [][]string, values int) ([][]string, error) {
	return l.store.lookUp(ctx, l.tx, query, by, values)
}

// Select returns what a query without arguments selects in so many columns. It has the time limit
// of a lookup.
func (l *LookupSnapshot) Select(ctx context.Context, query string, columns int) ([][]string, error) {
	ctx, cancel := context.WithTimeout(ctx, l.store.cfg.LookupTimeout+lookupGrace)
	defer cancel()
	return runLookup(ctx, l.tx, query, nil, columns, 0, math.MaxInt)
}

// Close ends the transaction.
func (l *LookupSnapshot) Close() error { return l.tx.Rollback() }
