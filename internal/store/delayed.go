package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/unstale/unstale/internal/dberr"
	"github.com/unstale/unstale/internal/session"
)

// A DelayedRow is a row of cache_outbox_delayed.
type DelayedRow struct {
	ID        uint64    `db:"id" json:"id"`
	Entity    string    `db:"entity" json:"entity"`
	EntityID  string    `db:"entity_id" json:"entity_id"`
	Params    *string   `db:"params" json:"params"` // text as written, perhaps not well-formed; nil if there are none
	Trace     string    `db:"trace" json:"trace"`
	CreatedAt time.Time `db:"created_at" json:"created_at"` // UTC, the database's clock; so is DueAt
	DueAt     time.Time `db:"due_at" json:"due_at"`
	// from now, by the database's clock; negative if it is already due
	Due      dueTime `db:"due_us" json:"due_in_seconds"`
	FirstID  uint64  `db:"first_id" json:"first_id"` // in cache_outbox, where it began; 0 if it never was in it
	Attempts int     `db:"attempts" json:"attempts"` // its own failures so far
	Repeated bool    `db:"repeated" json:"repeated"` // the map asked for this repeat
	Reason   string  `db:"reason" json:"reason"`     // of the last failure, or empty; so is Error
	Error    string  `db:"error" json:"error"`
}

// A dueTime is in microseconds, and in JSON in seconds.
type dueTime int64

// MarshalJSON implements json.Marshaler.
func (m dueTime) MarshalJSON() ([]byte, error) {
	return json.Marshal((time.Duration(m) * time.Microsecond).Seconds())
}

// DueIn returns how long until the row is due; negative if it is already due.
func (r *DelayedRow) DueIn() time.Duration { return time.Duration(r.Due) * time.Microsecond }

// A DelayedQuery selects the delayed rows that match every field. Empty fields match all.
type DelayedQuery struct {
	Entity string
	Reason string
	Due    bool // only rows that are due
}

// ReasonAway is the reason of a delayed row whose shard of Redis is unavailable.
const ReasonAway = "redis_away"

// DelayedReasons lists the reasons of delayed rows: ReasonAway, and those of package invalidation for
// which a row is retried. That package links the parser of maps, so it is not imported here.
func DelayedReasons() []string {
	return []string{ReasonAway, "lookup_failed", "redis_refused", "unknown_entity"}
}

const delayedFilter = `(? = '' OR entity = ?) AND (? = '' OR reason = ?) AND (? = 0 OR due_at <= UTC_TIMESTAMP(6))`

// Contract for both: no lock; the index on due_at in its order, up to the limit, or to its end if
// few rows match the filter.
const (
	listDelayedSQL = `SELECT id, first_id, entity, entity_id, params, COALESCE(trace, '') AS trace, created_at, due_at,
TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), due_at) AS due_us, attempts, repeated, reason, COALESCE(error, '') AS error
FROM cache_outbox_delayed FORCE INDEX (due) WHERE ` + delayedFilter + ` ORDER BY due_at, id LIMIT ?`
	countDelayedSQL = "SELECT COUNT(*) FROM (SELECT 1 FROM cache_outbox_delayed FORCE INDEX (due) WHERE " + delayedFilter + " LIMIT ?) AS counted"
)

func (q DelayedQuery) args(limit int) []any {
	return []any{q.Entity, q.Entity, q.Reason, q.Reason, q.Due, limit}
}

// DelayedRows lists the rows that match q, at most limit, earliest due time first, and counts the
// matches. A total of MaxExactCount+1 means "more".
func (o *Actions) DelayedRows(ctx context.Context, q DelayedQuery, limit int) (rows []DelayedRow, total int, err error) {
	if err := o.db.ReadRows(ctx, &rows, listDelayedSQL, q.args(limit)...); err != nil {
		return nil, 0, fmt.Errorf("list delayed rows: %w", err)
	}
	err = o.db.ReadRow(ctx, &total, countDelayedSQL, q.args(MaxExactCount+1)...)
	return rows, total, dberr.Wrap(err, "count delayed rows")
}

// retryChunk is how many rows one transaction of RetryDelayed changes.
const retryChunk = 1000

// Contract of undueSQL: no lock; the index on due_at from the rows that are not due, until LIMIT
// rows match. Contract of makeDueSQL: exclusive locks on the rows listed, found by primary key, and
// on their entries of the index on due_at; a claim of a worker ends first. Repeating it is harmless.
const (
	undueFilter   = `due_at > UTC_TIMESTAMP(6) AND (? OR reason <> '') AND ` + delayedFilter
	undueSQL      = `SELECT id FROM cache_outbox_delayed FORCE INDEX (due) WHERE ` + undueFilter + ` ORDER BY due_at LIMIT ?`
	countUndueSQL = "SELECT COUNT(*) FROM (SELECT 1 FROM cache_outbox_delayed FORCE INDEX (due) WHERE " + undueFilter + " LIMIT ?) AS counted"
	makeDueSQL    = `UPDATE JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT UNSIGNED PATH '$')) AS j
STRAIGHT_JOIN cache_outbox_delayed AS o FORCE INDEX (PRIMARY) ON o.id = j.id
SET o.due_at = UTC_TIMESTAMP(6) WHERE o.due_at > UTC_TIMESTAMP(6)`
)

// CountUndue counts the rows that RetryDelayed would change, up to MaxExactCount+1.
func CountUndue(ctx context.Context, db *session.Sessions, q DelayedQuery, scheduled bool) (n int, err error) {
	err = db.ReadRow(ctx, &n, countUndueSQL, append([]any{scheduled}, q.args(MaxExactCount+1)...)...)
	return n, dberr.Wrap(err, "count delayed rows")
}

// RetryDelayed makes the failed rows that match q due now, and with scheduled also repeats and the
// rows that the application scheduled. It changes 1,000 in a transaction, with its audit record, and
// calls did after each. If ctx ends, finished transactions remain.
func (o *Actions) RetryDelayed(ctx context.Context, q DelayedQuery, scheduled bool, did func(total int)) (done int, err error) {
	for ctx.Err() == nil {
		var ids []uint64
		if err := o.db.ReadRows(ctx, &ids, undueSQL, append([]any{scheduled}, q.args(retryChunk)...)...); err != nil {
			return done, fmt.Errorf("retry delayed rows: %w", err)
		}
		if len(ids) == 0 {
			return done, nil
		}
		arguments := map[string]any{"entity": q.Entity, "reason": q.Reason, "scheduled": scheduled, "ids": ids}
		err = o.audited(context.WithoutCancel(ctx), ActionDelayed, arguments, func(ctx context.Context, tx *sqlx.Tx) (int, error) {
			n, err := session.Affected(tx.ExecContext(ctx, makeDueSQL, jsonText(ids)))
			done += int(n)
			return int(n), err
		})
		if err != nil {
			return done, fmt.Errorf("retry delayed rows: %w", err)
		}
		did(done)
	}
	return done, ctx.Err()
}
