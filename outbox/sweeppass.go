package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// A SweepPass says how far a pass over the keyspace is.
type SweepPass struct {
	Worker       string `db:"worker"`
	Patterns     int    `db:"patterns"`
	Scanned      int64  `db:"scanned"`  // names that it has met
	Total        int64  `db:"total"`    // names that there were; 0: not known
	Unlinked     int64  `db:"unlinked"` // names that it has removed
	ForMicros    int64  `db:"lasted"`   // see For
	SilentMicros int64  `db:"silent"`   // set when read
}

// For is how long the pass has been under way.
func (p *SweepPass) For() time.Duration { return time.Duration(p.ForMicros) * time.Microsecond }

// firstEstimate is how long a pass must last before its rate says something.
const firstEstimate = 5 * time.Second

// Left is how long the pass will take from now on if it goes on as it did. It returns false where nobody knows.
func (p *SweepPass) Left() (time.Duration, bool) {
	if p.Total == 0 || p.Scanned == 0 || p.For() < firstEstimate {
		return 0, false
	}
	left := float64(p.For()) * float64(max(p.Total-p.Scanned, 0)) / float64(p.Scanned)
	return time.Duration(left), true
}

// silentPass is how long a pass may say nothing before it counts as dead with its process.
const silentPass = 15 * time.Second

// Contract for all: at most one row by primary key; a lock for one statement. Repeating them is harmless.
const (
	notePassSQL = `REPLACE INTO cache_outbox_sweeper (name, worker, began_at, patterns, scanned, total, unlinked)
VALUES ('pass', ?, UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND, ?, ?, ?, ?)`
	overPassSQL = "DELETE FROM cache_outbox_sweeper WHERE name = 'pass'"
	passSQL     = `SELECT worker, patterns, scanned, total, unlinked,
TIMESTAMPDIFF(MICROSECOND, began_at, UTC_TIMESTAMP(6)) AS lasted, TIMESTAMPDIFF(MICROSECOND, noted_at, UTC_TIMESTAMP(6)) AS silent
FROM cache_outbox_sweeper WHERE name = 'pass'`
)

// NotePass notes how far a pass is, for Status. Only the holder of the Lead may.
func (s *Store) NotePass(ctx context.Context, p SweepPass) error {
	if err := s.exec(ctx, notePassSQL, s.cfg.Worker, p.ForMicros, p.Patterns, p.Scanned, p.Total, p.Unlinked); err != nil {
		return fmt.Errorf("note the progress of a sweep: %w", err)
	}
	return nil
}

// PassOver notes that no pass is under way.
func (s *Store) PassOver(ctx context.Context) error {
	if err := s.exec(ctx, overPassSQL); err != nil {
		return fmt.Errorf("note the end of a sweep: %w", err)
	}
	return nil
}

// pass reads what was noted, nil where no pass is under way.
func (s *Store) pass(ctx context.Context) (*SweepPass, error) {
	var p SweepPass
	err := s.side.GetContext(ctx, &p, passSQL)
	if errors.Is(err, sql.ErrNoRows) || err == nil && time.Duration(p.SilentMicros)*time.Microsecond > silentPass {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &p, nil
}
