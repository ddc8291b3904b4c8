package store

import (
	"context"
	"fmt"
	"time"

	"github.com/unstale/unstale/internal/session"
)

// A SweepFailure is the reason why a worker cannot sweep at all. It does not cover single requests
// that Redis refuses.
type SweepFailure struct {
	Worker string `db:"worker"`
	Error  string `db:"error"`
}

// silentFailure is how long a failure counts as current without being recorded again: longer than
// any pause between two attempts.
const silentFailure = 90 * time.Second

// Contract for all: at most one row by primary key; a lock for one statement. Repeating them is
// harmless.
const (
	noteFailureSQL = "REPLACE INTO cache_outbox_sweeper (name, worker, error) VALUES ('failed', ?, ?)"
	overFailureSQL = "DELETE FROM cache_outbox_sweeper WHERE name = 'failed'"
	failureSQL     = `SELECT worker, COALESCE(error, '') AS error FROM cache_outbox_sweeper
WHERE name = 'failed' AND noted_at > UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND`
)

// NoteSweepFailure records why sweeps fail as a whole, for Status. Call it again at each failed
// attempt.
func (t *Sweeps) NoteSweepFailure(ctx context.Context, why error) error {
	if err := t.db.Exec(ctx, noteFailureSQL, t.db.Config.Worker, session.ErrorText(why.Error())); err != nil {
		return fmt.Errorf("record the failure of sweeps: %w", err)
	}
	return nil
}

// SweepsWork deletes the recorded failure.
func (t *Sweeps) SweepsWork(ctx context.Context) error {
	if err := t.db.Exec(ctx, overFailureSQL); err != nil {
		return fmt.Errorf("delete the recorded failure of sweeps: %w", err)
	}
	return nil
}

// SweepFailure returns the recorded failure, or nil if sweeps work.
func (t *Sweeps) SweepFailure(ctx context.Context) (*SweepFailure, error) {
	var found []SweepFailure
	if err := t.db.Side.SelectContext(ctx, &found, failureSQL, silentFailure.Microseconds()); err != nil || len(found) == 0 {
		return nil, err
	}
	return &found[0], nil
}
