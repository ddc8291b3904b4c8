package session

import (
	"context"
	"database/sql"
	"fmt"
	"math"
)

// A LookupSnapshot runs lookups with the session settings of a worker, on one snapshot of the data.
// It is for one goroutine.
type LookupSnapshot struct {
	lookups *Lookups
	tx      *sql.Tx
}

// LookupSnapshot begins a read-only transaction. It takes no lock and writes nothing. Close ends
// it.
func (l *Lookups) LookupSnapshot(ctx context.Context) (*LookupSnapshot, error) {
	tx, err := l.db.lookups.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
	if err != nil {
		return nil, fmt.Errorf("look up: %w", err)
	}
	return &LookupSnapshot{l, tx}, nil
}

// Lookup is like [Lookups.Lookup], except that a lookup that ONLY_FULL_GROUP_BY refuses fails.
func (l *LookupSnapshot) Lookup(ctx context.Context, query string, by [][]string, values int) ([][]string, error) {
	return l.lookups.lookUp(ctx, l.tx, query, by, values, 0)
}

// Select returns the result of a query without arguments that selects the given number of columns.
// It has the time limit of a lookup.
func (l *LookupSnapshot) Select(ctx context.Context, query string, columns int) ([][]string, error) {
	ctx, cancel := context.WithTimeout(ctx, l.lookups.db.Config.LookupTimeout+lookupGrace)
	defer cancel()
	return runLookup(ctx, l.tx, query, nil, columns, 0, answerSize{math.MaxInt, math.MaxInt, 0})
}

// Close ends the transaction.
func (l *LookupSnapshot) Close() error { return l.tx.Rollback() }
