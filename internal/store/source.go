package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/unstale/unstale/outbox"
)

// Source is the random id of the outbox.
func (s *Store) Source(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.StatementTimeout)
	defer cancel()
	return outbox.Source(ctx, s.side.DB)
}

// Contract: the single row of cache_outbox_source, under its lock until the commit. An account that may migrate has the
// rights; it may not UPDATE.
const (
	lockSourceSQL    = "SELECT id FROM cache_outbox_source WHERE one = 1 FOR UPDATE"
	deleteSourceSQL  = "DELETE FROM cache_outbox_source WHERE one = 1"
	replaceSourceSQL = "INSERT INTO cache_outbox_source (id) VALUES (LEFT(SHA2(CONCAT(UUID(), RAND()), 256), 32))"
)

// ReplaceSource gives the outbox another random ID, and returns it. It changes nothing unless the ID
// is old.
func (s *Store) ReplaceSource(ctx context.Context, old string) (id string, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.StatementTimeout)
	defer cancel()
	tx, err := s.side.BeginTxx(ctx, nil)
	if err != nil {
		return "", fmt.Errorf("replace the ID: %w", err)
	}
	defer func() { _ = tx.Rollback() }() // no effect after the commit
	if err := tx.GetContext(ctx, &id, lockSourceSQL); err != nil {
		return "", fmt.Errorf("read the ID: %w", err)
	}
	if id != old {
		return "", fmt.Errorf("the ID of the outbox is %s and not %s; nothing is changed", id, old)
	}
	for _, statement := range []string{deleteSourceSQL, replaceSourceSQL} {
		if _, err := tx.ExecContext(ctx, statement); err != nil {
			return "", fmt.Errorf("replace the ID: %w", err)
		}
	}
	err = tx.GetContext(ctx, &id, lockSourceSQL)
	return id, errors.Join(err, tx.Commit())
}
