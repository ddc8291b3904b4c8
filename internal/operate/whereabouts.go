package operate

import (
	"context"
	"fmt"
	"time"
)

// A Whereabout is a place where a row is now, before it is settled or in addition.
type Whereabout struct {
	Table  string     `db:"place"`  // without "cache_outbox_": "outbox", "delayed" or "dead"
	DueAt  *time.Time `db:"due_at"` // of a delayed row
	Reason string     `db:"reason"` // of a delayed row that failed, or of a dead letter
	Error  string     `db:"error"`
}

// Contract: no lock (a consistent read); the rows of one ID, found by primary key or by the indexes
// on first_id.
const whereaboutsSQL = `SELECT 'outbox' AS place, NULL AS due_at, '' AS reason, '' AS error FROM cache_outbox WHERE id = ?
UNION ALL SELECT 'delayed', due_at, COALESCE(reason, ''), COALESCE(error, '') FROM cache_outbox_delayed WHERE first_id = ?
UNION ALL SELECT 'dead', NULL, reason, COALESCE(error, '') FROM cache_outbox_dead WHERE first_id = ? LIMIT 100`

// Whereabouts returns where the row with this ID in cache_outbox is now: nowhere if it is settled,
// and in several places if the map asks for repeats.
func (o *Orders) Whereabouts(ctx context.Context, row uint64) (list []Whereabout, err error) {
	ctx, cancel := context.WithTimeout(ctx, o.db.Config.StatementTimeout)
	defer cancel()
	if err := o.db.Side.SelectContext(ctx, &list, whereaboutsSQL, row, row, row); err != nil {
		return nil, fmt.Errorf("look for row %d: %w", row, err)
	}
	return list, nil
}
