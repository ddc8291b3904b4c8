package operate

import (
	"context"
	"time"

	"github.com/unstale/unstale/internal/session"
)

// maxDifferences is how many differences a status has.
const maxDifferences = 5

// A Difference is a cached value that differs from the database although no row waits: see package
// shadow.
type Difference struct {
	Key     string    `db:"cache_key"`
	Outcome string    `db:"outcome"`
	Lease   time.Time `db:"leased_at"` // of the entry
	At      time.Time `db:"confirmed_at"`
	// how many were confirmed in the last 24 hours, this one included
	Count int `db:"n"`
	// Standing reports that Redis still has this entry. It is false if Redis was not read.
	Standing bool
}

// Contract: no lock (consistent reads); at most 1,000 entries of one index, and five rows.
const differencesSQL = `SELECT cache_key, outcome, leased_at, confirmed_at, COUNT(*) OVER () AS n FROM cache_outbox_shadow
WHERE confirmed_at >= UTC_TIMESTAMP(6) - INTERVAL 24 HOUR ORDER BY confirmed_at DESC LIMIT ?`

// readDifferences returns the latest differences of the last 24 hours, the newest first.
func readDifferences(ctx context.Context, db *session.Sessions) (found []Difference, err error) {
	err = db.Side.SelectContext(ctx, &found, differencesSQL, maxDifferences)
	return found, err
}
