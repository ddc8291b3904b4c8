package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// Contract: an exclusive record lock on that row until the rollback, which follows at once; none, and no wait, where
// somebody holds it (READ COMMITTED, primary key, SKIP LOCKED). Repeating it is harmless.
const tryRowSQL = "SELECT entity FROM cache_outbox FORCE INDEX (PRIMARY) WHERE id = ? FOR UPDATE SKIP LOCKED"

// Held reports whether a claim would leave out a row of cache_outbox, which was there a moment ago: somebody holds it, or it
// has just gone. A worker holds a row for a batch; longer does somebody else: an open transaction that has changed it, or one
// that was prepared and forgotten.
func (s *Store) Held(ctx context.Context, id uint64) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.StatementTimeout)
	defer cancel()
	tx, err := s.side.BeginTxx(ctx, nil)
	if err != nil {
		return false, fmt.Errorf("try row %d: %w", id, err)
	}
	defer func() { _ = tx.Rollback() }() // it has only locked
	var entity string
	switch err = tx.GetContext(ctx, &entity, tryRowSQL, id); {
	case errors.Is(err, sql.ErrNoRows):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("try row %d: %w", id, err)
	}
	return false, nil
}
