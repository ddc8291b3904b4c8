package store

import (
	"context"
	"fmt"
)

// Checks are the results of all spot checks of the batches that this process settled in one minute.
// A check is one key of one batch, even if it takes several looks.
type Checks struct {
	Sampled      uint64 `db:"sampled"`       // batches with at least one check that is not unknown
	EntryBatches uint64 `db:"entry_batches"` // of Sampled: with at least one entry found
	StaleBatches uint64 `db:"stale_batches"` // of Sampled: with at least one stale entry found

	Checked   uint64 `db:"checked"`    // WithEntry, Absent and Unknown
	WithEntry uint64 `db:"with_entry"` // an entry with a lease time was found, stale or not
	Stale     uint64 `db:"stale"`      // of WithEntry
	Absent    uint64 `db:"absent"`
	Unknown   uint64 `db:"unknown"`
	Repaired  uint64 `db:"repaired"` // stale entries that were unlinked
}

// Contract for both: an exclusive lock for one statement on one row by primary key, which only this
// process writes. Repeating it is harmless.
const (
	checksSQL = `INSERT INTO cache_outbox_minutes
(minute, worker, sampled, entry_batches, stale_batches, checked, with_entry, stale, absent, unknown, repaired)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON DUPLICATE KEY UPDATE sampled = ?, entry_batches = ?, stale_batches = ?, checked = ?, with_entry = ?, stale = ?, absent = ?, unknown = ?, repaired = ?`
	shadowsSQL = `INSERT INTO cache_outbox_minutes (minute, worker, shadow_reads, confirmed) VALUES (?, ?, ?, ?)
ON DUPLICATE KEY UPDATE shadow_reads = ?, confirmed = ?`
)

// NoteChecks writes the results of a minute. They replace those that this process wrote for the
// minute before, so c must be complete. The batches were settled in that minute, even if their
// checks end later: the batches of the minute are the weight of c. NoteChecks must not
// be called for a minute that is older than a day.
func (t *Minutes) NoteChecks(ctx context.Context, m Minute, c Checks) error {
	return t.note(ctx, checksSQL, m, c.Sampled, c.EntryBatches, c.StaleBatches, c.Checked, c.WithEntry, c.Stale, c.Absent, c.Unknown, c.Repaired)
}

// NoteShadows writes how many shadow reads this process evaluated in a minute, and how many of them
// were confirmed to differ. Both replace the numbers that it wrote for the minute before.
func (t *Minutes) NoteShadows(ctx context.Context, m Minute, reads, confirmed uint64) error {
	return t.note(ctx, shadowsSQL, m, reads, confirmed)
}

// note writes totals of this process. The statement takes them twice.
func (t *Minutes) note(ctx context.Context, query string, m Minute, totals ...any) error {
	ctx, cancel := context.WithTimeout(ctx, t.db.Config.StatementTimeout)
	defer cancel()
	args := append([]any{m, t.worker}, totals...)
	if err := t.db.Exec(ctx, query, append(args, totals...)...); err != nil {
		return fmt.Errorf("write checks of a minute: %w", err)
	}
	return nil
}
