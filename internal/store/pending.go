package store

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/unstale/unstale/internal/session"
)

// A PendingRow is a row that is not settled, or a repeat.
type PendingRow struct {
	Whereabout
	ID       uint64  `db:"id"` // in its table
	Entity   string  `db:"entity"`
	EntityID string  `db:"entity_id"`
	Params   *string `db:"params"` // JSON text as written; nil if there are none
	Trace    string  `db:"trace"`
	// when it was created or, if it is a dead letter, died; UTC, the database's clock
	Since time.Time `db:"since"`
	// it is not due and has not failed: an application scheduled it, or the map repeats it
	Scheduled bool `db:"scheduled"`
}

// An Object is an entity with an ID, or with any ID if that is empty. Rows whose ID is missing or
// was cut match each ID.
type Object struct{ Entity, ID string }

// A PendingQuery selects the rows that match one of its fields. One of them is required.
type PendingQuery struct {
	Objects []Object
	Trace   string
	Not     []string // all rows of other entities; nil: none
	All     bool     // all rows
}

// Contract for both: no lock (consistent reads); the first MaxExactCount rows of the primary key of
// each table, from its end for dead letters, and of the index on due_at. Then the params of those
// that match, by primary key. The second counts one more.
const (
	pendingSQL = `SELECT p.*, COALESCE(o.params, l.params, d.params) AS params FROM (SELECT * FROM (
(SELECT 'outbox' AS place, id, entity, entity_id, COALESCE(trace, '') AS trace, created_at AS since, NULL AS due_at, '' AS reason, '' AS error, 0 AS scheduled
FROM cache_outbox FORCE INDEX (PRIMARY) ORDER BY id LIMIT ?)
UNION ALL (SELECT 'delayed', id, entity, entity_id, COALESCE(trace, ''), created_at, due_at, COALESCE(reason, ''), COALESCE(error, ''),
COALESCE(reason, '') = '' AND due_at > UTC_TIMESTAMP(6) FROM cache_outbox_delayed FORCE INDEX (due) ORDER BY due_at LIMIT ?)
UNION ALL (SELECT 'dead', id, entity, entity_id, trace, died_at, NULL, reason, COALESCE(error, ''), 0
FROM cache_outbox_dead FORCE INDEX (PRIMARY) ORDER BY id DESC LIMIT ?)) AS pending WHERE %s ORDER BY scheduled, place, id LIMIT ?) AS p
LEFT JOIN cache_outbox AS o ON p.place = 'outbox' AND o.id = p.id
LEFT JOIN cache_outbox_delayed AS l ON p.place = 'delayed' AND l.id = p.id
LEFT JOIN cache_outbox_dead AS d ON p.place = 'dead' AND d.id = p.id ORDER BY p.scheduled, p.place, p.id`
	countPendingSQL = `SELECT GREATEST((SELECT COUNT(*) FROM (SELECT 1 FROM cache_outbox LIMIT ?) AS o),
(SELECT COUNT(*) FROM (SELECT 1 FROM cache_outbox_delayed LIMIT ?) AS l), (SELECT COUNT(*) FROM (SELECT 1 FROM cache_outbox_dead LIMIT ?) AS d))`
)

// Pending lists the rows that match q, at most limit, among the first 10,000 of each table: dead
// letters first, and scheduled rows last. It reports whether others that are not scheduled may
// match.
func Pending(ctx context.Context, db *session.Sessions, q PendingQuery, limit int) (list []PendingRow, more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, db.Config.StatementTimeout)
	defer cancel()
	args, conditions := []any{MaxExactCount, MaxExactCount, MaxExactCount}, []string(nil)
	if q.All {
		q, conditions = PendingQuery{}, []string{"TRUE"}
	}
	if q.Trace != "" {
		conditions, args = append(conditions, "trace = ?"), append(args, q.Trace)
	}
	for _, object := range q.Objects {
		conditions = append(conditions, "entity = ? AND (? IN ('', entity_id) OR CHAR_LENGTH(entity_id) NOT BETWEEN 1 AND 255)")
		args = append(args, object.Entity, object.ID)
	}
	if len(q.Not) > 0 {
		conditions = append(conditions, "entity NOT IN (?"+strings.Repeat(", ?", len(q.Not)-1)+")")
		for _, entity := range q.Not {
			args = append(args, entity)
		}
	}
	if len(conditions) == 0 {
		return nil, false, nil
	}
	err = db.Side.SelectContext(ctx, &list, fmt.Sprintf(pendingSQL, strings.Join(conditions, " OR ")), append(args, limit)...)
	counted := 0
	if err == nil {
		err = db.Side.GetContext(ctx, &counted, countPendingSQL, MaxExactCount+1, MaxExactCount+1, MaxExactCount+1)
	}
	if err != nil {
		return nil, false, fmt.Errorf("look for rows that wait: %w", err)
	}
	return list, counted > MaxExactCount || len(list) == limit && !list[limit-1].Scheduled, nil
}
