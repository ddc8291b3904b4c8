package operate

import (
	"context"
	"fmt"
	"time"
)

// A DelayedRow is a row of cache_outbox_delayed.
type DelayedRow struct {
	ID        uint64    `db:"id"`
	FirstID   uint64    `db:"first_id"` // in cache_outbox, where it began; 0 if it never was in it
	Entity    string    `db:"entity"`
	EntityID  string    `db:"entity_id"`
	Params    *string   `db:"params"` // JSON text as written; nil if there are none
	Trace     string    `db:"trace"`
	CreatedAt time.Time `db:"created_at"` // UTC, the database's clock; so is DueAt
	DueAt     time.Time `db:"due_at"`
	// from now, by the database's clock; negative if it is already due
	DueMicros int64  `db:"due_us"`
	Attempts  int    `db:"attempts"` // its own failures so far
	Repeated  bool   `db:"repeated"` // the map asked for this repeat
	Reason    string `db:"reason"`   // of the last failure, or empty; so is Error
	Error     string `db:"error"`
}

// DueIn returns how long until the row is due; negative if it is already due.
func (r *DelayedRow) DueIn() time.Duration { return time.Duration(r.DueMicros) * time.Microsecond }

// A DelayedQuery selects the delayed rows that match every field. Empty fields match all.
type DelayedQuery struct {
	Entity string
	Reason string
	Due    bool // only rows that are due
}

const delayedFilter = `(? = '' OR entity = ?) AND (? = '' OR reason = ?) AND (? = 0 OR due_at <= UTC_TIMESTAMP(6))`

// Contract for both: no lock; the index on due_at in its order, up to the limit, or to its end if
// few rows match the filter.
const (
	listDelayedSQL = `SELECT id, first_id, entity, entity_id, params, trace, created_at, due_at,
TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), due_at) AS due_us, attempts, repeated, reason, COALESCE(error, '') AS error
FROM cache_outbox_delayed FORCE INDEX (due) WHERE ` + delayedFilter + ` ORDER BY due_at, id LIMIT ?`
	countDelayedSQL = "SELECT COUNT(*) FROM (SELECT 1 FROM cache_outbox_delayed FORCE INDEX (due) WHERE " + delayedFilter + " LIMIT ?) AS counted"
)

func (q DelayedQuery) args(limit int) []any {
	return []any{q.Entity, q.Entity, q.Reason, q.Reason, q.Due, limit}
}

// DelayedRows lists the rows that match q, at most limit, earliest due time first, and counts the
// matches. A total of MaxExactCount+1 means "more".
func (o *Orders) DelayedRows(ctx context.Context, q DelayedQuery, limit int) (rows []DelayedRow, total int, err error) {
	ctx, cancel := context.WithTimeout(ctx, o.db.Config.StatementTimeout)
	defer cancel()
	if err := o.db.Side.SelectContext(ctx, &rows, listDelayedSQL, q.args(limit)...); err != nil {
		return nil, 0, fmt.Errorf("list delayed rows: %w", err)
	}
	if err := o.db.Side.GetContext(ctx, &total, countDelayedSQL, q.args(MaxExactCount+1)...); err != nil {
		return nil, 0, fmt.Errorf("count delayed rows: %w", err)
	}
	return rows, total, nil
}
