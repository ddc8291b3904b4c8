package store

import (
	"context"
	"encoding/base64"
	"fmt"
	"time"

	"github.com/unstale/unstale/internal/session"
)

// An Entry is the journal's record of one settled row, or of one finished sweep: see IsSweep.
type JournalEntry struct {
	// first ID of the row in cache_outbox; 0 if it never was in it; for a sweep, the sweep's ID
	ID       uint64
	Entity   string // empty for a sweep
	EntityID string
	Trace    string
	Keys     []string
	Patterns []string
	Sets     []string
	// HoldMillis is the hold time of the keys, or of the names that a sweep finds.
	HoldMillis int64
	// WrittenMicros is when the row was inserted, by the database's clock, in microseconds since
	// 1970; 0: unknown. It is in the timeline of the batch, which only SearchJournal reads.
	WrittenMicros int64
	// Partial reports that the row was not settled: its lookup had failed, and this is the part of
	// its plan that needs no lookup.
	Partial bool
}

// Contract: appends one row; takes no lock that another insert waits for. Binary data are sent as
// text, since MySQL cannot list statements while one of them is not UTF-8 (3854).
const RecordSQL = `INSERT INTO cache_outbox_journal (worker, row_count, map_version, epoch, beat, born_us, hashes, body, journey)
VALUES (?,?,?,?,?,?,FROM_BASE64(?),FROM_BASE64(?),FROM_BASE64(?))`

// A Journal reads and writes the journal. Safe for concurrent use.
type Journal struct{ db *session.Sessions }

// NewJournal returns the Journal of an outbox.
func NewJournal(db *session.Sessions) *Journal { return &Journal{db} }

// IsSweep reports whether the entry is for a finished sweep. An entry for a row has an entity.
func (e *JournalEntry) IsSweep() bool { return e.Entity == "" }

// Record returns the arguments of RecordSQL.
func (j *Journal) Record(rows int, mapVersion string, position Position, born uint64, hashes, body, journey []byte) []any {
	text := base64.StdEncoding.EncodeToString
	args := []any{j.db.Config.Worker, rows, mapVersion, position.Epoch, position.N, born, text(hashes), text(body), nil}
	if journey != nil {
		args[len(args)-1] = text(journey)
	}
	return args
}

// Contract: exclusive locks on at most the rows that it deletes, found by the index on settled_at;
// oldest first. Repeating it deletes the next ones.
const expireSQL = `DELETE FROM cache_outbox_journal
WHERE settled_at < UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND ORDER BY settled_at LIMIT ?`

// ExpireJournal deletes journal rows older than retention, at most chunk rows per statement, until
// none is left or ctx ends, and returns how many. Several workers can run it concurrently: they
// share the work.
func (j *Journal) ExpireJournal(ctx context.Context, retention time.Duration, chunk int) (deleted int64, err error) {
	for {
		n, err := j.expire(ctx, retention, chunk)
		deleted += n
		if err != nil || n < int64(chunk) {
			return deleted, err
		}
	}
}

func (j *Journal) expire(ctx context.Context, retention time.Duration, chunk int) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, j.db.Config.StatementTimeout)
	defer cancel()
	res, err := j.db.Side.ExecContext(ctx, expireSQL, retention.Microseconds(), chunk)
	if err != nil {
		return 0, fmt.Errorf("expire journal: %w", err)
	}
	return res.RowsAffected()
}

// Hold returns HoldMillis as a duration.
func (e *JournalEntry) Hold() time.Duration { return time.Duration(e.HoldMillis) * time.Millisecond }

// Names returns how many keys, patterns and sets the entry has.
func (e *JournalEntry) Names() int { return len(e.Keys) + len(e.Patterns) + len(e.Sets) }

// Bytes returns the total length of the entry's keys, patterns and sets in bytes.
func (e *JournalEntry) Bytes() (n int) {
	for _, list := range [...][]string{e.Keys, e.Patterns, e.Sets} {
		for _, name := range list {
			n += len(name)
		}
	}
	return n
}
