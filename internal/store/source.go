package store

import (
	"context"

	"github.com/unstale/unstale/outbox"
)

// Source is the random id of the outbox.
func (s *Store) Source(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.StatementTimeout)
	defer cancel()
	return outbox.Source(ctx, s.side.DB)
}
