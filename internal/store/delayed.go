package store

import (
	"context"
	"fmt"
	"time"
)

// A DelayedRow is one of cache_outbox_delayed.
type DelayedRow struct {
	ID        uint64    `db:"id"`
	FirstID   uint64    `db:"first_id"` // in cache_outbox, where it began; 0 if it never was there
	Entity    string    `db:"entity"`
	EntityID  string    `db:"entity_id"`
	Params    *string   `db:"params"` // JSON text as written; nil if there are none
	Trace     string    `db:"trace"`
	CreatedAt time.Time `db:"created_at"` // UTC, the database's clock; so is DueAt
	DueAt     time.Time `db:"due_at"`
	DueMicros int64     `db:"due_us"`   // from now, by the database's clock; below 0 where it has been due
	Attempts  int       `db:"attempts"` // failures of its own so far
	Repeated  bool      `db:"repeated"` // a repeat that the map asked for
	Reason    string    `db:"reason"`   // of the last failure, or empty; so is Error
	Error     string    `db:"error"`
}

// DueIn is how long it waits still, below 0 where it has been due.
func (r *DelayedRow) DueIn() time.Duration { return time.Duration(r.DueMicros) * time.Microsecond }

// A DelayedQuery chooses delayed rows: all that fulfil every field. Empty fields say nothing.
type DelayedQuery struct {
	Entity string
	Reason string
	Due    bool // those alone that are due
}

const delayedFilter = `(? = '' OR entity = ?) AND (? = '' OR reason = ?) AND (? = 0 OR due_at <= UTC_TIMESTAMP(6))`

// Contract for both: no lock; the index on due_at in its order, as far as the limit, or to its end where few rows fulfil the
// filter.
const (
	listDelayedSQL = `SELECT id, first_id, entity, entity_id, params, trace, created_at, due_at,
TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), due_at) AS due_us, attempts, repeated, reason, COALESCE(error, '') AS error
FROM cache_outbox_delayed FORCE INDEX (due) WHERE ` + delayedFilter + ` ORDER BY due_at, id LIMIT ?`
	countDelayedSQL = "SELECT COUNT(*) FROM (SELECT 1 FROM cache_outbox_delayed FORCE INDEX (due) WHERE " + delayedFilter + " LIMIT ?) AS counted"
)

func (q DelayedQuery) args(limit int) []any {
	return []any{q.Entity, q.Entity, q.Reason, q.Reason, q.Due, limit}
}

// DelayedRows lists those that q chooses, at most limit, the first due first, and counts them, at most as far as
// MaxExactCount+1, which means "more".
func (s *Store) DelayedRows(ctx context.Context, q DelayedQuery, limit int) (rows []DelayedRow, total int, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.StatementTimeout)
	defer cancel()
	if err := s.side.SelectContext(ctx, &rows, listDelayedSQL, q.args(limit)...); err != nil {
		return nil, 0, fmt.Errorf("list delayed rows: %w", err)
	}
	if err := s.side.GetContext(ctx, &total, countDelayedSQL, q.args(MaxExactCount+1)...); err != nil {
		return nil, 0, fmt.Errorf("count delayed rows: %w", err)
	}
	return rows, total, nil
}
