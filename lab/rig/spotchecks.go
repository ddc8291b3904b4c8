package rig

import (
	"context"
	"database/sql"
	"fmt"
)

// SpotChecks are the results of the spot checks of a fleet. A worker that is killed takes the
// results of its last seconds with it, and those of checks that were not over.
type SpotChecks struct {
	Checked   int `json:"checked"` // keys of batches
	WithEntry int `json:"with_entry"`
	Absent    int `json:"absent"`
	Unknown   int `json:"unknown"`
	Stale     int `json:"stale"` // entries in the workers' logs
	// the log's lines about them, the first few
	Found []string `json:"found,omitempty"`
}

// mostFound is how many lines SpotChecks keeps.
const mostFound = 10

// staleLine is in the log's line about each stale entry.
const staleLine = `"msg":"stale entry"`

// SpotChecks returns the results so far: from the database of the outbox, and those of stale
// entries from the logs of all workers.
func (f *Fleet) SpotChecks(ctx context.Context, db *sql.DB) (c SpotChecks, err error) {
	err = db.QueryRowContext(ctx, "SELECT COALESCE(SUM(checked), 0), COALESCE(SUM(with_entry), 0), COALESCE(SUM(absent), 0), COALESCE(SUM(unknown), 0) FROM cache_outbox_minutes").
		Scan(&c.Checked, &c.WithEntry, &c.Absent, &c.Unknown)
	if err != nil {
		return c, fmt.Errorf("read spot checks: %w", err)
	}
	c.Found = f.Lines(staleLine)
	c.Stale = len(c.Found)
	c.Found = c.Found[:min(len(c.Found), mostFound)]
	return c, nil
}

// FoundStale reports whether a worker has found a stale entry.
func (f *Fleet) FoundStale() bool { return f.Said(staleLine) > 0 }

// String returns the counts as text.
func (c SpotChecks) String() string {
	return fmt.Sprintf("%d spot checks, %d with an entry, %d absent, %d unknown; %d stale", c.Checked, c.WithEntry, c.Absent, c.Unknown, c.Stale)
}
