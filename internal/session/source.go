package session

import (
	"context"
	"errors"
	"fmt"

	"github.com/unstale/unstale/outbox"
)

// Source returns the random ID of the outbox.
func (s *Sessions) Source(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, s.Config.StatementTimeout)
	defer cancel()
	return outbox.Source(ctx, s.Side.DB)
}

// Contract: the single row of cache_outbox_source, locked until the commit. An account that may
// migrate has the privileges; it may not UPDATE.
const (
	lockSourceSQL    = "SELECT id FROM cache_outbox_source WHERE one = 1 FOR UPDATE"
	deleteSourceSQL  = "DELETE FROM cache_outbox_source WHERE one = 1"
	replaceSourceSQL = "INSERT INTO cache_outbox_source (id) VALUES (LEFT(SHA2(CONCAT(UUID(), RAND()), 256), 32))"
)

// ReplaceSource replaces the random ID of the outbox and returns the new one. If the current ID is
// not old, it changes nothing and returns an error.
func (s *Sessions) ReplaceSource(ctx context.Context, old string) (id string, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.Config.StatementTimeout)
	defer cancel()
	if _, err = s.Source(ctx); err != nil { // of several outboxes, none is replaced
		return "", err
	}
	tx, err := s.Side.BeginTxx(ctx, nil)
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
