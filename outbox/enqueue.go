package outbox

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"strings"
)

// A statement inserts at most this many rows and about this many bytes: far below the placeholder
// limit of 65,535 and the smallest max_allowed_packet in use (16 MiB on MariaDB).
const (
	maxStatementRows  = 500
	maxStatementBytes = 1 << 20
)

// Contract: appends; takes no lock that another insert waits for; not repeatable (each run adds
// rows).
const (
	insertSQL        = "INSERT INTO cache_outbox (entity, entity_id, params, trace) VALUES "
	insertDelayedSQL = "INSERT INTO cache_outbox_delayed (entity, entity_id, params, trace, due_at) VALUES "
)

// dueLayout is the format of a DATETIME(6), in UTC with any time zone of the session.
const dueLayout = "2006-01-02 15:04:05.000000"

// Enqueue inserts invalidations in the transaction tx. The worker processes them after tx commits.
// Enqueue does not commit or roll back.
//
// Enqueue first checks all invalidations. If one is invalid, it returns a *[FieldError] and inserts
// nothing. Other errors come from the database, wrapped; then some rows may have been inserted, so
// roll tx back. Without invalidations, Enqueue does nothing and returns nil. It is safe for
// concurrent use if tx is.
func Enqueue(ctx context.Context, tx Tx, invalidations ...Invalidation) error {
	now, later, err := encodeAll(ctx, invalidations)
	if err != nil {
		return err
	}
	if err := insert(ctx, tx, insertSQL, "(?,?,?,?)", now, nil); err != nil {
		return err
	}
	return insert(ctx, tx, insertDelayedSQL, "(?,?,?,?,?)", later, nil)
}

// encodeAll checks everything first and returns the column values of each row, by table. Rows
// without a trace get the trace of ctx.
func encodeAll(ctx context.Context, invalidations []Invalidation) (now, later [][]any, err error) {
	asked, trace := false, ""
	for i, inv := range invalidations {
		params, err := inv.encode()
		if err != nil {
			err.Index = i
			return nil, nil, err
		}
		if inv.Trace == "" && !asked {
			asked, trace = true, traceOf(ctx)
		}
		row := []any{inv.Entity, inv.ID, params, cmp.Or(inv.Trace, trace)}
		if inv.NotBefore.IsZero() {
			now = append(now, row)
			continue
		}
		later = append(later, append(row, inv.NotBefore.UTC().Format(dueLayout)))
	}
	return now, later, nil
}

// insert calls did, unless it is nil, with the number of rows of each statement.
func insert(ctx context.Context, tx Tx, stmt, tuple string, rows [][]any, did func(sql.Result, int) error) error {
	for len(rows) > 0 {
		n := fit(rows)
		args := make([]any, 0, n*len(rows[0]))
		for _, row := range rows[:n] {
			args = append(args, row...)
		}
		query := stmt + strings.Repeat(tuple+",", n-1) + tuple
		result, err := tx.ExecContext(ctx, query, args...)
		if err == nil && did != nil {
			err = did(result, n)
		}
		if err != nil {
			return fmt.Errorf("insert invalidations: %w", err)
		}
		rows = rows[n:]
	}
	return nil
}

// fit returns how many of rows go into one statement, at least one.
func fit(rows [][]any) int {
	bytes := 0
	for i, row := range rows {
		for _, v := range row {
			if s, ok := v.(string); ok {
				bytes += len(s)
			}
		}
		if i == maxStatementRows || i > 0 && bytes > maxStatementBytes {
			return i
		}
	}
	return len(rows)
}
