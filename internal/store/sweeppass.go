package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// A SweepPass says how far sweeps of one kind are: a pass over the keyspace for patterns, or index sets that are taken
// one batch after the other.
type SweepPass struct {
	Kind         SweepKind `db:"-"`
	Worker       string    `db:"worker"`
	Patterns     int       `db:"patterns"` // of a pass for patterns
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

// For is how long the pass has been under way.
func (p *SweepPass) For() time.Duration { return time.Duration(p.ForMicros) * time.Microsecond }

// firstEstimate is how long a pass must last before its rate says something.
const firstEstimate = 5 * time.Second

// Left is how long the pass will take from now on if it goes on as it did. It returns false where nobody knows: in its first
// seconds, without a total, while requests keep arriving, and while a large set is in hand.
func (p *SweepPass) Left() (time.Duration, bool) {
	if p.Unsure || p.Total == 0 || p.Scanned == 0 || p.For() < firstEstimate {
		return 0, false
	}
	left := float64(p.For()) * float64(max(p.Total-p.Scanned, 0)) / float64(p.Scanned)
	return time.Duration(left), true
}

// silentPass is how long a pass may say nothing before it counts as dead with its process.
const silentPass = 15 * time.Second

// Contract for all: at most one row by primary key; a lock for one statement. Repeating them is harmless.
const (
	notePassSQL = `REPLACE INTO cache_outbox_sweeper (name, worker, began_at, patterns, scanned, total, unlinked, unsure)
VALUES (?, ?, UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND, ?, ?, ?, ?, ?)`
	overPassSQL = "DELETE FROM cache_outbox_sweeper WHERE name = ?"
	passSQL     = `SELECT worker, patterns, scanned, total, unlinked, unsure,
TIMESTAMPDIFF(MICROSECOND, began_at, UTC_TIMESTAMP(6)) AS lasted, TIMESTAMPDIFF(MICROSECOND, noted_at, UTC_TIMESTAMP(6)) AS silent
FROM cache_outbox_sweeper WHERE name = ?`
)

// NotePass notes how far sweeps of a kind are, for Status. Only the holder of the Lead may.
func (s *Store) NotePass(ctx context.Context, p SweepPass) error {
	if err := s.exec(ctx, notePassSQL, p.Kind.row(), s.cfg.Worker, p.ForMicros, p.Patterns, p.Scanned, p.Total, p.Unlinked, p.Unsure); err != nil {
		return fmt.Errorf("note the progress of a sweep: %w", err)
	}
	return nil
}

// PassOver notes that no sweeps of a kind are under way.
func (s *Store) PassOver(ctx context.Context, kind SweepKind) error {
	if err := s.exec(ctx, overPassSQL, kind.row()); err != nil {
		return fmt.Errorf("note the end of a sweep: %w", err)
	}
	return nil
}

// pass reads what was noted, nil where no sweeps of the kind are under way.
func (s *Store) pass(ctx context.Context, kind SweepKind) (*SweepPass, error) {
	p := SweepPass{Kind: kind}
	err := s.side.GetContext(ctx, &p, passSQL, kind.row())
	if errors.Is(err, sql.ErrNoRows) || err == nil && time.Duration(p.SilentMicros)*time.Microsecond > silentPass {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &p, nil
}
