package store

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/unstale/unstale/internal/session"
)

// lockChunk is how many rows of cache_outbox_locks one statement reads, and one transaction removes
// at most.
const lockChunk = 500

// Contract: no lock (a consistent read); a range of the primary key, LIMIT rows. There is no index
// on minted_at, which every acquisition would pay for. Names travel as hexadecimal text, since
// MySQL lists no statements while one of them is not UTF-8 (3854).
const lockRowsSQL = `SELECT HEX(name) AS hex, minted_at < UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND AS is_old
FROM cache_outbox_locks FORCE INDEX (PRIMARY) WHERE name > UNHEX(?) ORDER BY name LIMIT ?`

// Contract: exclusive locks on the rows that it returns, and for the moment in which it looks at
// them on the young ones between (READ COMMITTED), a range of the primary key. It waits for nobody:
// a row that a guarded transaction or a mint has locked is passed over.
const lockOldSQL = `SELECT HEX(name) FROM cache_outbox_locks FORCE INDEX (PRIMARY)
WHERE name >= UNHEX(?) AND name <= UNHEX(?) AND minted_at < UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND ORDER BY name LIMIT ? FOR UPDATE SKIP LOCKED`

// Contract: as RemoveSQL, for the names listed, which the transaction has locked.
const removeOldSQL = `DELETE o FROM JSON_TABLE(?, '$[*]' COLUMNS (name VARCHAR(510) PATH '$')) AS j
STRAIGHT_JOIN cache_outbox_locks AS o FORCE INDEX (PRIMARY) ON o.name = UNHEX(j.name)`

// LockRows is the table of locks that were taken. Safe for concurrent use.
type LockRows struct{ db *session.Sessions }

// NewLockRows returns the Table of a database.
func NewLockRows(db *session.Sessions) *LockRows { return &LockRows{db} }

// A LockWalk is how far ExpireLocks has come. The zero value is the beginning.
type LockWalk struct{ after string }

// ExpireLocks deletes rows of cache_outbox_locks that were not minted for longer than retention,
// each under its lock. It looks at most rows, rounded up to a chunk, and goes on where the walk has
// stopped; behind the last row the walk begins anew. It returns how many it has deleted. A mint
// waits for a transaction of a few milliseconds at most; a row that somebody has locked stays for
// the next time. Safe to run in several workers at once.
func (t *LockRows) ExpireLocks(ctx context.Context, walk *LockWalk, retention time.Duration, most int) (deleted int64, err error) {
	for seen := 0; seen < most; seen += lockChunk {
		var rows []struct {
			Hex string // of the name
			Old bool   `db:"is_old"`
		}
		err := t.db.ReadRows(ctx, &rows, lockRowsSQL, retention.Microseconds(), walk.after, lockChunk)
		var last, firstOld, lastOld string
		for _, r := range rows {
			if last = r.Hex; r.Old {
				firstOld, lastOld = cmp.Or(firstOld, r.Hex), r.Hex
			}
		}
		if err == nil && firstOld != "" {
			var gone int64
			gone, err = t.removeLocks(ctx, firstOld, lastOld, retention)
			deleted += gone
			if session.IsContention(err) {
				err = nil // the next time
			}
		}
		if err != nil {
			return deleted, fmt.Errorf("expire rows of locks: %w", err)
		}
		if walk.after = last; len(rows) < lockChunk {
			*walk = LockWalk{}
			break
		}
	}
	return deleted, nil
}

// removeLocks deletes those rows from first to last that are old still and that nobody has locked.
func (t *LockRows) removeLocks(ctx context.Context, first, last string, retention time.Duration) (n int64, err error) {
	err = t.db.InTx(ctx, t.db.Side, func(ctx context.Context, tx *sqlx.Tx) error {
		var names []string
		err := tx.SelectContext(ctx, &names, lockOldSQL, first, last, retention.Microseconds(), lockChunk)
		if err == nil && len(names) > 0 {
			n, err = session.Affected(tx.ExecContext(ctx, removeOldSQL, jsonText(names)))
		}
		return err
	})
	return n, err
}
