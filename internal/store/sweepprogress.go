package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// A SweepProgress says how far sweeps of one kind are: a scan of the keyspace for patterns, or index sets that are
// taken apart one batch after the other.
type SweepProgress struct {
	Kind         SweepKind `db:"-"`
	Worker       string    `db:"worker"`
	Patterns     int       `db:"patterns"` // of a scan for patterns
	Scanned      int64     `db:"scanned"`  // names that it has met; sets that were taken
	Total        int64     `db:"total"`    // names that there were; sets that were taken and those that still wait; 0: not known
	Unlinked     int64     `db:"unlinked"` // names that it has removed; members of sets
	ForMicros    int64     `db:"lasted"`   // see For
	SilentMicros int64     `db:"silent"`   // set when read
	Unsure       bool      `db:"unsure"`   // nobody knows how long it will take: see Left
}

// row is the name of a kind's row.
func (k SweepKind) row() string {
	if k == SweepSet {
		return "sets"
	}
	return "pass"
}

// For is how long the scan has been under way.
func (p *SweepProgress) For() time.Duration { return time.Duration(p.ForMicros) * time.Microsecond }

// firstEstimate is how long a scan must last before its rate says something.
const firstEstimate = 5 * time.Second

// Left is how long the scan will take from now on if it goes on as it did. It returns false where nobody knows: in its
// first seconds, without a total, while requests keep arriving, and while a large set is in hand.
func (p *SweepProgress) Left() (time.Duration, bool) {
	if p.Unsure || p.Total == 0 || p.Scanned == 0 || p.For() < firstEstimate {
		return 0, false
	}
	left := float64(p.For()) * float64(max(p.Total-p.Scanned, 0)) / float64(p.Scanned)
	return time.Duration(left), true
}

// silentProgress is how long a scan may say nothing before it counts as dead with its process.
const silentProgress = 15 * time.Second

// Contract for all: at most one row by primary key; a lock for one statement. Repeating them is harmless.
const (
	noteProgressSQL = `REPLACE INTO cache_outbox_sweeper (name, worker, began_at, patterns, scanned, total, unlinked, unsure)
VALUES (?, ?, UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND, ?, ?, ?, ?, ?)`
	endProgressSQL = "DELETE FROM cache_outbox_sweeper WHERE name = ?"
	progressSQL    = `SELECT worker, patterns, scanned, total, unlinked, unsure,
TIMESTAMPDIFF(MICROSECOND, began_at, UTC_TIMESTAMP(6)) AS lasted, TIMESTAMPDIFF(MICROSECOND, noted_at, UTC_TIMESTAMP(6)) AS silent
FROM cache_outbox_sweeper WHERE name = ?`
)

// NoteProgress notes how far sweeps of a kind are, for Status. Only the holder of the sweep lock may.
func (s *Store) NoteProgress(ctx context.Context, p SweepProgress) error {
	if err := s.exec(ctx, noteProgressSQL, p.Kind.row(), s.cfg.Worker, p.ForMicros, p.Patterns, p.Scanned, p.Total, p.Unlinked, p.Unsure); err != nil {
		return fmt.Errorf("note the progress of a sweep: %w", err)
	}
	return nil
}

// EndProgress notes that no sweeps of a kind are under way.
func (s *Store) EndProgress(ctx context.Context, kind SweepKind) error {
	if err := s.exec(ctx, endProgressSQL, kind.row()); err != nil {
		return fmt.Errorf("note the end of a sweep: %w", err)
	}
	return nil
}

// progress reads what was noted, nil where no sweeps of the kind are under way.
func (s *Store) progress(ctx context.Context, kind SweepKind) (*SweepProgress, error) {
	p := SweepProgress{Kind: kind}
	err := s.side.GetContext(ctx, &p, progressSQL, kind.row())
	if errors.Is(err, sql.ErrNoRows) || err == nil && time.Duration(p.SilentMicros)*time.Microsecond > silentProgress {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &p, nil
}
