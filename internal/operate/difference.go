package operate

import (
	"context"

	"github.com/unstale/unstale/internal/session"
)

// A Difference is a cached value that differs from the database although no row waits: see package
// shadow.
type Difference struct {
	Key     string `db:"cache_key"`
	Outcome string `db:"outcome"`
	// how many were confirmed in the last 24 hours, this one included
	Count int `db:"n"`
}

// Contract: no lock (consistent reads); at most 1,000 entries of one index, and one row.
const differenceSQL = `SELECT cache_key, outcome, COUNT(*) OVER () AS n FROM cache_outbox_shadow
WHERE confirmed_at >= UTC_TIMESTAMP(6) - INTERVAL 24 HOUR ORDER BY confirmed_at DESC LIMIT 1`

// readDifference returns the latest difference of the last 24 hours, or nil if there is none.
func readDifference(ctx context.Context, db *session.Sessions) (*Difference, error) {
	var found []Difference
	if err := db.Side.SelectContext(ctx, &found, differenceSQL); err != nil || len(found) == 0 {
		return nil, err
	}
	return &found[0], nil
}
