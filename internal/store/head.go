package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// Contract for all: no lock. They read at most one row, or the listed rows up to a limit. MySQL 9.7
// plans a query for only the id as a scan from the table's start, regardless of its bound, so all
// bounded queries select another column.
const (
	firstSQL  = "SELECT id FROM cache_outbox FORCE INDEX (PRIMARY) ORDER BY id LIMIT 1"
	existsSQL = "EXISTS (SELECT entity FROM cache_outbox FORCE INDEX (PRIMARY) WHERE %s)"
	listSQL   = "SELECT id, entity FROM cache_outbox FORCE INDEX (PRIMARY) WHERE %s ORDER BY id LIMIT %d"
)

// begin runs the scans that r needs and returns where r begins.
func (q *Queue) begin(ctx context.Context, r request) (start, error) {
	for {
		next, at := q.planner.plan(r)
		if next == nil {
			return at, nil
		}
		if err := q.scan(ctx, next); err != nil {
			return start{}, err
		}
	}
}

// scan runs a scan and passes the result to the planner.
func (q *Queue) scan(ctx context.Context, next *scan) (err error) {
	var a answer
	if next.kind == scanFirst {
		began := time.Now()
		err = q.db.Claims.QueryRowContext(ctx, firstSQL).Scan(&a.first.id)
		a.took, a.first.found = time.Since(began), err == nil
		if errors.Is(err, sql.ErrNoRows) {
			err = nil
		}
	} else {
		a, err = q.list(ctx, next.spans)
	}
	if err == nil {
		q.planner.observe(time.Now(), next, a)
	}
	return err
}

// list lists rows, committed or not. It gives up after half of the time that ctx leaves, so the
// other half remains for the caller's next statement. It replaces the end of all IDs by the last
// assigned ID, at most the second greatest: no head can be beyond the greatest.
func (q *Queue) list(ctx context.Context, spans []span) (a answer, err error) {
	if spans[0].last == allIDs {
		next, err := q.db.NextID(ctx, hot.name)
		if err != nil {
			return answer{}, err
		}
		spans[0].last = min(next-1, allIDs-1)
	}
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(2 * q.db.Config.StatementTimeout)
	}
	limited, cancel := context.WithTimeout(ctx, time.Until(deadline)/2)
	defer cancel()
	began := time.Now()
	tx, err := q.db.Side.BeginTxx(limited, &sql.TxOptions{Isolation: sql.LevelReadUncommitted, ReadOnly: true})
	if err == nil {
		var rows []struct {
			ID     uint64
			Entity string
		}
		began = time.Now()
		err = tx.SelectContext(limited, &rows, fmt.Sprintf(listSQL, spanned(spans), maxListed+1))
		ended := time.Now()
		_ = tx.Rollback() // it has only read
		a.rtt = time.Since(ended)
		a.took = max(ended.Sub(began)-a.rtt, 0)
		for _, row := range rows {
			a.ids = append(a.ids, row.ID)
		}
	}
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		return answer{took: time.Since(began), gaveUp: true}, nil
	}
	return a, err
}
