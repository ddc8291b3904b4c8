package store

import (
	"context"
	"slices"
	"time"

	"github.com/unstale/unstale/internal/session"
)

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

// An OldEntry is an entry that was found to be old: by a shadow read, see package shadow, or by a
// spot check, see package spotcheck.
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
	differencesSQL = `SELECT cache_key AS name, leased_at, 0 AS before_us, confirmed_at AS found_at, SUM(confirmed_at >= UTC_TIMESTAMP(6) - INTERVAL 24 HOUR) OVER () AS n
FROM cache_outbox_shadow ORDER BY confirmed_at DESC LIMIT ?`
	leftSQL = `SELECT name, CAST(TIMESTAMPADD(MICROSECOND, leased_us, '1970-01-01') AS DATETIME(6)) AS leased_at, unlinked_us AS before_us, found_at, 0 AS n FROM cache_outbox_stale
WHERE repaired = 0 AND (ttl_ms = 0 OR TIMESTAMPADD(MICROSECOND, 1000 * ttl_ms, found_at) > UTC_TIMESTAMP(6)) ORDER BY id DESC LIMIT ?`
)

// readDifferences returns the latest differences, and how many were confirmed in the last 24 hours.
func readDifferences(ctx context.Context, db *session.Sessions) (found []OldEntry, err error) {
	err = db.Side.SelectContext(ctx, &found, differencesSQL, MaxOldEntries)
	return found, err
}

// readLeft returns the latest stale entries that no worker has unlinked, the last one of each key.
func readLeft(ctx context.Context, db *session.Sessions) (found []OldEntry, err error) {
	known := map[string]bool{}
	err = db.Side.SelectContext(ctx, &found, leftSQL, MaxOldEntries)
	return slices.DeleteFunc(found, func(e OldEntry) bool {
		again := known[e.Key]
		known[e.Key] = true
		return again
	}), err
}
