package outbox

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/unstale/unstale/internal/dberr"
	"github.com/unstale/unstale/internal/mysqlerr"
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

// Contract: no lock (a consistent read), one row by a scan. The count is 1, unless a proxy sends the
// statement to several servers: by the key, it would choose one of them.
const sourceSQL = "SELECT COALESCE(MIN(id), ''), COUNT(*) FROM cache_outbox_source"

// severalOutboxes is the error of a database that has several outboxes.
func severalOutboxes(n int) error {
	return fmt.Errorf("cache_outbox_source has %d rows, as in a keyspace with several shards, and each shard has an outbox of its own; connect to one shard", n)
}

// Source returns the random ID of the outbox in db, which does not change as long as its tables
// exist. Workers include the ID in their heartbeats. If readers use the in-process cache of package
// cache, pass the ID to cache.Memory.Sources: they use it only while these heartbeats arrive.
//
// The account needs SELECT on cache_outbox_source. If the table is missing, or has several rows
// because db has several shards, the error says so.
// Source is safe for concurrent use.
func Source(ctx context.Context, db Pool) (string, error) {
	var id string
	var outboxes int
	err := db.QueryRowContext(ctx, sourceSQL).Scan(&id, &outboxes)
	cure := ""
	switch n := mysqlerr.Number(err); {
	case outboxes == 1:
		return id, nil
	case outboxes > 1:
		err = severalOutboxes(outboxes)
	case n == mysqlerr.NoTable:
		cure = "; run 'unstale migrate up'"
	case n == mysqlerr.NoRight:
		cure = "; GRANT SELECT ON cache_outbox_source to the account"
	case err == nil:
		err = sql.ErrNoRows
		cure = ": cache_outbox_source is empty; run INSERT INTO cache_outbox_source (id) VALUES (LEFT(SHA2(UUID(), 256), 32))"
	}
	return "", fmt.Errorf("read the id of the outbox: %w%s", err, cure)
}

// tracer is the function of SetTracer.
var tracer atomic.Pointer[func(context.Context) string]

// SetTracer sets the function that returns the Trace of rows whose [Invalidation] has none. For
// example, trace returns the W3C traceparent of the span in ctx. It gets the context of the call of
// [Enqueue] or [Writes.Enqueue], once per call. If it returns "", the rows have no trace.
//
// If trace returns text that is invalid UTF-8 or longer than MaxTrace characters, the row is still
// inserted. Its trace is then "no trace: " and the reason. A panic of trace reaches the caller of
// Enqueue.
//
// Call SetTracer once, before the first Enqueue. A nil function disables it. SetTracer is safe for
// concurrent use, and trace must be too.
func SetTracer(trace func(ctx context.Context) string) {
	if trace == nil {
		tracer.Store(nil)
		return
	}
	tracer.Store(&trace)
}

// traceOf returns the trace of the rows that are enqueued with ctx and name none.
func traceOf(ctx context.Context) string {
	trace := tracer.Load()
	if trace == nil {
		return ""
	}
	text := (*trace)(ctx)
	if err := checkText("trace", text, MaxTrace, false); err != nil {
		return "no trace: " + err.Problem
	}
	return text
}

// Contract: of the session only. The triggers of "unstale capture" read it.
const (
	captureOffSQL = "SET @unstale_capture = 'off'"
	captureOnSQL  = "SET @unstale_capture = NULL"
)

// WithoutCapture runs fn with a connection on which the triggers of "unstale capture" are disabled.
// Use it for bulk jobs that enqueue their own rows.
//
// Afterwards, WithoutCapture enables the triggers again, even if fn returns an error or panics. If
// that fails, it closes the connection. fn must not use the connection after it returns. The error
// comes from fn or from the connection, or says that db leads to VTGate of Vitess, where triggers do
// not learn that they are disabled. WithoutCapture is safe for concurrent use.
func WithoutCapture(ctx context.Context, db Pool, fn func(conn *sql.Conn) error) error {
	conn, err := db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("switch capture off: %w", err)
	}
	defer func() {
		if _, failed := conn.ExecContext(context.WithoutCancel(ctx), captureOnSQL); failed != nil {
			dberr.Discard(conn)
		}
		_ = conn.Close()
	}()
	if err := dberr.RefuseVTGate(ctx, conn); err != nil { // triggers on a shard would not see the variable
		return fmt.Errorf("switch capture off: %w", err)
	}
	if _, err := conn.ExecContext(ctx, captureOffSQL); err != nil {
		return fmt.Errorf("switch capture off: %w", err)
	}
	return fn(conn)
}
