package store

import (
	"context"
	"encoding/hex"
	"slices"
	"time"

	"github.com/unstale/unstale/internal/dberr"
	"github.com/unstale/unstale/internal/session"
)

const (
	// most is how many rows stay, and retention for how long.
	most      = 1000
	retention = 30 * 24 * time.Hour
	longest   = 1024 // bytes of a key
)

// A StaleEntry is a stale entry of Redis.
type StaleEntry struct {
	FoundAt   time.Time `db:"found_at"` // UTC, the database's clock
	Worker    string    `db:"worker"`
	Key       string    `db:"name"` // at most 1,024 bytes of it
	Row       uint64    `db:"row_id"`
	Entity    string    `db:"entity"`
	EntityID  string    `db:"entity_id"`
	Trace     string    `db:"trace"`
	Epoch     string    `db:"epoch"` // position of the batch in the journal
	Number    uint64    `db:"beat"`
	Leased    uint64    `db:"leased_us"` // by the clock of Redis; 0: not known
	Unlinked  uint64    `db:"unlinked_us"`
	AfterMs   int64     `db:"after_ms"` // since the UNLINK
	TTLMillis int64     `db:"ttl_ms"`   // 0: not known
	Held      bool      `db:"held"`
	Repaired  bool      `db:"repaired"`
}

// Contract: inserts one row; no lock that another insert waits for. Repeating it keeps the entry
// twice. The key travels as hexadecimal text, since MySQL lists no statements while one of them is
// not UTF-8 (3854).
const addSQL = `INSERT INTO cache_outbox_stale
(worker, name, row_id, entity, entity_id, trace, epoch, beat, leased_us, unlinked_us, after_ms, ttl_ms, held, repaired)
VALUES (?, UNHEX(?), ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`

// Contract for all: no lock; at most 1,000 rows or so, which the table has at most.
const (
	staleColumns = "SELECT found_at, worker, name, row_id, entity, entity_id, trace, epoch, beat, leased_us, unlinked_us, after_ms, ttl_ms, held, repaired FROM cache_outbox_stale "

	ofSQL         = staleColumns + "WHERE name = UNHEX(?) ORDER BY id DESC LIMIT ?"
	latestSQL     = staleColumns + "ORDER BY id DESC LIMIT ?"
	countStaleSQL = `SELECT COALESCE(SUM(found_at >= UTC_TIMESTAMP(6) - INTERVAL 1 HOUR), 0) AS hour, COUNT(*) AS day
FROM cache_outbox_stale WHERE found_at >= UTC_TIMESTAMP(6) - INTERVAL 1 DAY`
)

// Contract for both: exclusive locks on the rows that it deletes, a range of the primary key.
// Repeating it is harmless.
const (
	limitSQL       = "DELETE FROM cache_outbox_stale WHERE id <= (SELECT id FROM (SELECT id FROM cache_outbox_stale ORDER BY id DESC LIMIT 1 OFFSET ?) AS newest) ORDER BY id LIMIT 1000"
	expireStaleSQL = "DELETE FROM cache_outbox_stale WHERE found_at < UTC_TIMESTAMP(6) - INTERVAL ? SECOND ORDER BY id LIMIT 1000"
)

// StaleEntries is cache_outbox_stale. Safe for concurrent use.
type StaleEntries struct{ db *session.Sessions }

// NewStaleEntries returns the Table of an outbox.
func NewStaleEntries(db *session.Sessions) *StaleEntries { return &StaleEntries{db} }

// Add keeps an entry, with the name of this process as its worker. FoundAt is not used.
func (t *StaleEntries) Add(ctx context.Context, e StaleEntry) error {
	err := t.db.Exec(ctx, addSQL, t.db.Config.Worker, key(e.Key), e.Row, e.Entity, e.EntityID, e.Trace, e.Epoch, e.Number,
		e.Leased, e.Unlinked, e.AfterMs, e.TTLMillis, e.Held, e.Repaired)
	return dberr.Wrap(err, "keep a stale entry")
}

// Trim deletes all entries except the newest thousand, and those that are older than 30 days.
// Several workers may run it at once.
func (t *StaleEntries) Trim(ctx context.Context) error {
	err := t.db.Exec(ctx, limitSQL, most)
	if err == nil {
		err = t.db.Exec(ctx, expireStaleSQL, int(retention.Seconds()))
	}
	if session.IsContention(err) {
		return nil
	}
	return dberr.Wrap(err, "trim stale entries")
}

// Of returns the newest entries of a key, at most so many, the newest first.
func (t *StaleEntries) Of(ctx context.Context, name string, limit int) ([]StaleEntry, error) {
	return t.query(ctx, ofSQL, key(name), limit)
}

// Latest returns the newest entries, at most so many, the newest first.
func (t *StaleEntries) Latest(ctx context.Context, limit int) ([]StaleEntry, error) {
	return t.query(ctx, latestSQL, limit)
}

func (t *StaleEntries) query(ctx context.Context, query string, args ...any) (list []StaleEntry, err error) {
	err = t.db.ReadRows(ctx, &list, query, args...)
	return list, dberr.Wrap(err, "read stale entries")
}

// A StaleCount is how many entries were found lately.
type StaleCount struct{ Hour, Day int }

// StaleCount counts them.
func (t *StaleEntries) Count(ctx context.Context) (n StaleCount, err error) {
	err = t.db.ReadRow(ctx, &n, countStaleSQL)
	return n, dberr.Wrap(err, "count stale entries")
}

// key returns a key as the table has it, in hexadecimal digits.
func key(name string) string { return hex.EncodeToString([]byte(name[:min(len(name), longest)])) }

// MaxOldEntries is how many differences and how many stale entries a status has at most.
const MaxOldEntries = 200

// An EntryState reports whether Redis still has an entry.
type EntryState int

// The states of an entry.
const (
	Unread  EntryState = iota // Redis was not read
	Gone                      // it has none, or one that is not known to be old
	Present                   // it has this one, or another old one
)

// An OldEntry is an entry that was found to be old: by a shadow read or by a spot check, see package
// maintenance.
type OldEntry struct {
	Key   string    `db:"name"`
	Lease time.Time `db:"leased_at"` // 1970: unknown
	// microseconds since 1970: an entry with an earlier lease is old too; 0: that is unknown
	Before uint64    `db:"before_us"`
	At     time.Time `db:"found_at"`
	// how many differences were confirmed in the last 24 hours, this one included
	Count int `db:"n"`
	State EntryState
}

// Contract for both: no lock (consistent reads); at most 1,000 rows, which the tables have.
const (
	// the latest differences, and how many were confirmed in the last 24 hours
	differencesSQL = `SELECT cache_key AS name, leased_at, 0 AS before_us, confirmed_at AS found_at, SUM(confirmed_at >= UTC_TIMESTAMP(6) - INTERVAL 24 HOUR) OVER () AS n
FROM cache_outbox_shadow ORDER BY confirmed_at DESC LIMIT ?`
	leftSQL = `SELECT name, CAST(TIMESTAMPADD(MICROSECOND, leased_us, '1970-01-01') AS DATETIME(6)) AS leased_at, unlinked_us AS before_us, found_at, 0 AS n FROM cache_outbox_stale
WHERE repaired = 0 AND (ttl_ms = 0 OR TIMESTAMPADD(MICROSECOND, 1000 * ttl_ms, found_at) > UTC_TIMESTAMP(6)) ORDER BY id DESC LIMIT ?`
)

// readLeft returns the latest stale entries that no worker has unlinked, the last one of each key.
func readLeft(ctx context.Context, db *session.Sessions) (found []OldEntry, err error) {
	known := map[string]bool{}
	err = db.ReadRows(ctx, &found, leftSQL, MaxOldEntries)
	return slices.DeleteFunc(found, func(e OldEntry) bool {
		again := known[e.Key]
		known[e.Key] = true
		return again
	}), err
}
