package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// A Pause keeps all workers from claiming rows.
type Pause struct {
	Who     string     `db:"who"`
	Reason  string     `db:"reason"`
	BeganAt time.Time  `db:"began_at"` // UTC, the database's clock; so is EndsAt
	EndsAt  *time.Time `db:"ends_at"`  // nil: it does not end by itself
}

// String says who paused the workers, since when, until when and why.
func (p *Pause) String() string {
	text := "since " + p.BeganAt.Format(time.RFC3339) + " by " + p.Who
	if p.EndsAt != nil {
		text += ", until " + p.EndsAt.Format(time.RFC3339)
	}
	if p.Reason != "" {
		text += ": " + p.Reason
	}
	return text
}

// Contract for all: at most one row by primary key, without a lock where it is read. Repeating the first begins the
// pause again, repeating the last does nothing.
const (
	pauseSQL = `REPLACE INTO cache_outbox_control (name, who, reason, began_at, ends_at)
VALUES ('pause', ?, ?, UTC_TIMESTAMP(6), IF(? = 0, NULL, UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND))`
	pausedSQL = `SELECT who, reason, began_at, ends_at FROM cache_outbox_control
WHERE name = 'pause' AND (ends_at IS NULL OR ends_at > UTC_TIMESTAMP(6))`
	resumeSQL = "DELETE FROM cache_outbox_control WHERE name = 'pause'"
)

// Pause makes all workers stop claiming within a second or so, until Resume or, unless it is 0, for a time. A pause
// that lasts already is replaced.
func (s *Store) Pause(ctx context.Context, who, reason string, lasts time.Duration) error {
	if err := s.exec(ctx, pauseSQL, who, errorText(reason), lasts.Microseconds(), lasts.Microseconds()); err != nil {
		return fmt.Errorf("pause: %w", err)
	}
	return nil
}

// Paused returns the pause that lasts, nil if there is none.
func (s *Store) Paused(ctx context.Context) (*Pause, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.StatementTimeout)
	defer cancel()
	var p Pause
	switch err := s.side.GetContext(ctx, &p, pausedSQL); {
	case errors.Is(err, sql.ErrNoRows):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("look for a pause: %w", err)
	}
	return &p, nil
}

// Resume ends the pause and returns it, nil if there was none.
func (s *Store) Resume(ctx context.Context) (*Pause, error) {
	p, err := s.Paused(ctx)
	if err == nil {
		err = s.exec(ctx, resumeSQL)
	}
	if err != nil {
		return nil, fmt.Errorf("resume: %w", err)
	}
	return p, nil
}
