package store

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// A Whereabout is a place where a row is now, before it is settled or in addition.
type Whereabout struct {
	Table  string     `db:"place"`  // without "cache_outbox_": "outbox", "delayed" or "dead"
	Row    uint64     `db:"row_id"` // in cache_outbox; 0 for a row that was scheduled
	DueAt  *time.Time `db:"due_at"` // of a delayed row
	Reason string     `db:"reason"` // of a delayed row that failed, or of a dead letter
	Error  string     `db:"error"`
}

// A WhereaboutsQuery selects rows: by Row, or by what else is not empty.
type WhereaboutsQuery struct {
	Row                     uint64 // in cache_outbox
	Entity, EntityID, Trace string
}

// maxWhereabouts bounds the result of Whereabouts per table.
const maxWhereabouts = 100

// whereaboutsSQL returns the statement with a condition for each table.
func whereaboutsSQL(outbox, delayed, dead string) string {
	return `(SELECT 'outbox' AS place, id AS row_id, NULL AS due_at, '' AS reason, '' AS error FROM cache_outbox WHERE ` + outbox + ` LIMIT ?)
UNION ALL (SELECT 'delayed', first_id, due_at, COALESCE(reason, ''), COALESCE(error, '') FROM cache_outbox_delayed WHERE ` + delayed + ` LIMIT ?)
UNION ALL (SELECT 'dead', first_id, NULL, reason, COALESCE(error, '') FROM cache_outbox_dead WHERE ` + dead + ` LIMIT ?)`
}

// Contract for both: no lock (a consistent read). By row: found by primary key or by the indexes on
// first_id. By names: reads the tables until enough rows match, since only operators ask.
var (
	whereaboutsOfRowSQL   = whereaboutsSQL("id = ?", "first_id = ?", "first_id = ?")
	whereaboutsOfNamesSQL = whereaboutsSQL(namesFilter, namesFilter, namesFilter)
)

const namesFilter = "(? = '' OR entity = ?) AND (? = '' OR entity_id = ?) AND (? = '' OR trace = ?)"

// Whereabouts returns where rows are now, at most 100 per table: a row is nowhere if it is settled,
// and in several places if the map asks for repeats.
func (o *Orders) Whereabouts(ctx context.Context, q WhereaboutsQuery) (list []Whereabout, err error) {
	ctx, cancel := context.WithTimeout(ctx, o.db.Config.StatementTimeout)
	defer cancel()
	sql, args := whereaboutsOfRowSQL, []any{q.Row}
	if q.Row == 0 {
		sql, args = whereaboutsOfNamesSQL, []any{q.Entity, q.Entity, q.EntityID, q.EntityID, q.Trace, q.Trace}
	}
	args = slices.Repeat(append(args, maxWhereabouts), 3)
	if err := o.db.Side.SelectContext(ctx, &list, sql, args...); err != nil {
		return nil, fmt.Errorf("look for rows that are not settled: %w", err)
	}
	return list, nil
}
