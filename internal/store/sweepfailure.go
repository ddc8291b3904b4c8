package store

import (
	"context"
	"fmt"
	"time"
)

// A SweepFailure says why a worker's sweeps fail as a whole: of all that wait, and not of one that Redis refuses.
type SweepFailure struct {
	Worker string `db:"worker"`
	Error  string `db:"error"`
}

// silentFailure is how long a failure may not be noted again before it counts as over: longer than any pause between
// two attempts.
const silentFailure = 90 * time.Second

// Contract for all: at most one row by primary key; a lock for one statement. Repeating them is harmless.
const (
	noteFailureSQL = "REPLACE INTO cache_outbox_sweeper (name, worker, error) VALUES ('failed', ?, ?)"
	overFailureSQL = "DELETE FROM cache_outbox_sweeper WHERE name = 'failed'"
	failureSQL     = `SELECT worker, COALESCE(error, '') AS error FROM cache_outbox_sweeper
WHERE name = 'failed' AND noted_at > UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND`
)

// NoteSweepFailure notes why sweeps fail as a whole, for Status. It has to be noted again at each attempt.
func (s *Store) NoteSweepFailure(ctx context.Context, why error) error {
	if err := s.exec(ctx, noteFailureSQL, s.cfg.Worker, errorText(why.Error())); err != nil {
		return fmt.Errorf("note why sweeps fail: %w", err)
	}
	return nil
}

// SweepsWork notes that sweeps work again.
func (s *Store) SweepsWork(ctx context.Context) error {
	if err := s.exec(ctx, overFailureSQL); err != nil {
		return fmt.Errorf("note that sweeps work: %w", err)
	}
	return nil
}

// sweepFailure reads what was noted, nil where sweeps work.
func (s *Store) sweepFailure(ctx context.Context) (*SweepFailure, error) {
	var found []SweepFailure
	if err := s.side.SelectContext(ctx, &found, failureSQL, silentFailure.Microseconds()); err != nil || len(found) == 0 {
		return nil, err
	}
	return &found[0], nil
}
