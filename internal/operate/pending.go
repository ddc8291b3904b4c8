package operate

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
	ID       uint64 `db:"id"` // in its table
	Entity   string `db:"entity"`
	EntityID string `db:"entity_id"`
	Trace    string `db:"trace"`
	// when it was created or, if it is a dead letter, died; UTC, the database's clock
	Since time.Time `db:"since"`
}

// An Object is an entity with an ID, or with any ID if that is empty.
type Object struct{ Entity, ID string }

// A PendingQuery selects the rows that match one of Objects, or have a trace. One of them is
// required.
type PendingQuery struct {
	Objects []Object
	Trace   string
}

// Contract: no lock (a consistent read); the first MaxExactCount rows of the primary key of each
// table, from its end for dead letters, and of the index on due_at.
const pendingSQL = `SELECT * FROM (
(SELECT 'outbox' AS place, id, entity, entity_id, trace, created_at AS since, NULL AS due_at, '' AS reason, '' AS error
FROM cache_outbox FORCE INDEX (PRIMARY) ORDER BY id LIMIT ?)
UNION ALL (SELECT 'delayed', id, entity, entity_id, trace, created_at, due_at, COALESCE(reason, ''), COALESCE(error, '')
FROM cache_outbox_delayed FORCE INDEX (due) ORDER BY due_at LIMIT ?)
UNION ALL (SELECT 'dead', id, entity, entity_id, trace, died_at, NULL, reason, COALESCE(error, '')
FROM cache_outbox_dead FORCE INDEX (PRIMARY) ORDER BY id DESC LIMIT ?)) AS pending WHERE `

// Pending lists the rows that match q, at most limit, among the first 10,000 of each table.
func (o *Orders) Pending(ctx context.Context, q PendingQuery, limit int) (list []PendingRow, err error) {
	ctx, cancel := context.WithTimeout(ctx, o.db.Config.StatementTimeout)
	defer cancel()
	args, conditions := []any{MaxExactCount, MaxExactCount, MaxExactCount}, []string(nil)
	if q.Trace != "" {
		conditions, args = append(conditions, "trace = ?"), append(args, q.Trace)
	}
	for _, object := range q.Objects[:min(len(q.Objects), session.Chunk)] {
		conditions, args = append(conditions, "entity = ? AND ? IN ('', entity_id)"), append(args, object.Entity, object.ID)
	}
	if len(conditions) == 0 {
		return nil, nil
	}
	if err := o.db.Side.SelectContext(ctx, &list, pendingSQL+strings.Join(conditions, " OR ")+" LIMIT ?", append(args, limit)...); err != nil {
		return nil, fmt.Errorf("look for rows that wait: %w", err)
	}
	return list, nil
}
