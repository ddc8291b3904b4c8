package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// A SweepProgress reports how far sweeps of one kind are: one scan of the keyspace for patterns, or
// index sets that are cleared in batches.
type SweepProgress struct {
	Kind     SweepKind `db:"-"`
	Worker   string    `db:"worker"`
	Patterns int       `db:"patterns"` // of a scan for patterns
	Scanned  int64     `db:"scanned"`  // names scanned so far; sets cleared
	// names in the keyspace; sets cleared and sets that wait; 0: unknown
	Total        int64 `db:"total"`
	Unlinked     int64 `db:"unlinked"` // names deleted; members of sets deleted
	ForMicros    int64 `db:"lasted"`   // see For
	SilentMicros int64 `db:"silent"`   // set when read
	Unsure       bool  `db:"unsure"`   // the remaining time is unknown: see Left
}

// row returns the name of the row of a kind.
func (k SweepKind) row() string {
	if k == SweepSet {
		return "sets"
	}
	return "pass"
}

// For returns how long the scan has been running.
func (p *SweepProgress) For() time.Duration { return time.Duration(p.ForMicros) * time.Microsecond }

// firstEstimate is how long a scan must run before its rate is meaningful.
const firstEstimate = 5 * time.Second

// Left returns the remaining time of the scan at its current rate. It returns false if the time is
// unknown: in the first seconds, without a total, while requests keep arriving, and while a large
// set is being cleared.
func (p *SweepProgress) Left() (time.Duration, bool) {
	if p.Unsure || p.Total == 0 || p.Scanned == 0 || p.For() < firstEstimate {
		return 0, false
	}
	left := float64(p.For()) * float64(max(p.Total-p.Scanned, 0)) / float64(p.Scanned)
	return time.Duration(left), true
}

// silentProgress is how long progress counts as current without an update. After that, the process
// counts as dead.
const silentProgress = 15 * time.Second

// Contract for all: at most one row by primary key; a lock for one statement. Repeating them is
// harmless.
const (
	noteProgressSQL = `REPLACE INTO cache_outbox_sweeper (name, worker, began_at, patterns, scanned, total, unlinked, unsure)
VALUES (?, ?, UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND, ?, ?, ?, ?, ?)`
	endProgressSQL = "DELETE FROM cache_outbox_sweeper WHERE name = ?"
	progressSQL    = `SELECT worker, patterns, scanned, total, unlinked, unsure,
TIMESTAMPDIFF(MICROSECOND, began_at, UTC_TIMESTAMP(6)) AS lasted, TIMESTAMPDIFF(MICROSECOND, noted_at, UTC_TIMESTAMP(6)) AS silent
FROM cache_outbox_sweeper WHERE name = ?`
)

// NoteProgress records how far sweeps of a kind are, for Status. Only the holder of the sweep lock
// may call it.
func (t *Sweeps) NoteProgress(ctx context.Context, p SweepProgress) error {
	if err := t.db.Exec(ctx, noteProgressSQL, p.Kind.row(), t.db.Config.Worker, p.ForMicros, p.Patterns, p.Scanned, p.Total, p.Unlinked, p.Unsure); err != nil {
		return fmt.Errorf("record the progress of a sweep: %w", err)
	}
	return nil
}

// EndProgress records that no sweeps of a kind are running.
func (t *Sweeps) EndProgress(ctx context.Context, kind SweepKind) error {
	if err := t.db.Exec(ctx, endProgressSQL, kind.row()); err != nil {
		return fmt.Errorf("record the end of a sweep: %w", err)
	}
	return nil
}

// Progress returns the recorded progress, or nil if no sweeps of the kind are running.
func (t *Sweeps) Progress(ctx context.Context, kind SweepKind) (*SweepProgress, error) {
	p := SweepProgress{Kind: kind}
	err := t.db.Side.GetContext(ctx, &p, progressSQL, kind.row())
	if errors.Is(err, sql.ErrNoRows) || err == nil && time.Duration(p.SilentMicros)*time.Microsecond > silentProgress {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &p, nil
}
