package session

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/unstale/unstale/internal/dberr"
	"github.com/unstale/unstale/internal/mysqlerr"
	"github.com/unstale/unstale/internal/sqltext"
)

// Lookups runs the lookups of the map. Safe for concurrent use.
type Lookups struct {
	db        *Sessions
	ungrouped sync.Map // the lookups that ONLY_FULL_GROUP_BY refuses: query to error
}

// NewLookups returns Lookups that use the lookup pool of db.
func NewLookups(db *Sessions) *Lookups { return &Lookups{db: db} }

// Lookup runs a lookup of the map and returns its rows as text: the by-values, then the given
// number of values. The query has one `?`, which becomes the list of by-values, or of tuples if
// they have several columns. IN (UNHEX(?)) becomes IN (UNHEX(?),UNHEX(?)). The lookup sees the data
// that is committed now, outside any claim, in a read-only session of a separate pool.
//
//   - If all values of a row are NULL, the row is left out. If only some are, the error is a
//     LookupNullError.
//   - The server ends the lookup after LookupTimeout; the error is a SlowLookupError.
//   - An error of the server itself is a *mysql.MySQLError.
//   - A lookup that ONLY_FULL_GROUP_BY refuses runs without that mode, and Ungrouped reports it.
func (l *Lookups) Lookup(ctx context.Context, query string, by [][]string, values int) ([][]string, error) {
	return l.LookupUpTo(ctx, query, by, values, 0)
}

// LookupUpTo is like Lookup, but returns a LookupManyError soon after it has read more than each
// rows for one element of by, without the rest of the result. If each is 0, there is no such limit.
func (l *Lookups) LookupUpTo(ctx context.Context, query string, by [][]string, values, each int) ([][]string, error) {
	if len(by) == 0 {
		return nil, nil
	}
	conn, err := l.lookupSession(ctx)
	if err != nil {
		return nil, fmt.Errorf("look up: %w", err)
	}
	defer func() { _ = conn.Close() }() // back to the pool
	found, err := l.lookUp(ctx, conn, query, by, values, each)
	if IsGrouping(err) {
		return l.lookUpUngrouped(ctx, conn, query, by, values, each, err)
	}
	return found, err
}

// A querier is a session, or a transaction in one.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// lookUp runs a lookup once.
func (l *Lookups) lookUp(ctx context.Context, on querier, query string, by [][]string, values, each int) ([][]string, error) {
	width := len(by[0])
	args := make([]any, 0, width*len(by))
	for _, values := range by {
		for _, v := range values {
			args = append(args, v)
		}
	}
	most := answerSize{maxLookupRows, maxLookupBytes, each}
	if len(by) == 1 { // it cannot be cut
		most.rows = maxAnswerRows
	}
	limited, cancel := context.WithTimeout(ctx, l.db.Config.LookupTimeout+lookupGrace)
	defer cancel()
	found, err := runLookup(limited, on, fillLookup(query, width, len(by)), args, width, values, most)
	switch {
	case err == nil:
		return found, nil
	case ctx.Err() == nil && (isEnded(err) || limited.Err() != nil):
		return nil, &SlowLookupError{l.db.Config.LookupTimeout, err}
	case mysqlerr.Number(err) == mysqlerr.ReadOnlySession:
		return nil, fmt.Errorf("look up: it writes, and a lookup's session is read-only; let it only read: %w", err)
	}
	return nil, fmt.Errorf("look up: %w", err)
}

// lookupSession returns a session of the pool. Connecting does not count toward the lookup's
// timeout.
func (l *Lookups) lookupSession(ctx context.Context) (*sql.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, l.db.Config.StatementTimeout)
	defer cancel()
	return l.db.lookups.Conn(ctx)
}

// fillLookup replaces the query's `?` with a list of count tuples, or repeats the functions around it.
func fillLookup(query string, width, count int) string {
	element := "?"
	if first, last := sqltext.Element(sqltext.Tokens(query)); first < last && width == 1 {
		placed := sqltext.Placed(query)
		element = query[placed[first].At : placed[last].At+1]
	}
	tuple := element
	if width > 1 {
		tuple = "(?" + strings.Repeat(",?", width-1) + ")"
	}
	return strings.Replace(query, element, tuple+strings.Repeat(","+tuple, count-1), 1)
}

func runLookup(ctx context.Context, on querier, query string, args []any, by, values int, most answerSize) ([][]string, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	rows, err := on.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }() // rows.Err reports what went wrong
	found, err := readLookup(rows, by, values, most)
	if most.each > 0 && err != nil {
		cancel() // ends the session, since Close would read the rest of the result
	}
	return found, err
}

func readLookup(rows *sql.Rows, by, values int, most answerSize) ([][]string, error) {
	columns, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	width := by + values
	if len(columns) != width {
		return nil, &LookupShapeError{Want: width, Columns: columns}
	}
	cells, into := make([]sql.NullString, width), make([]any, width)
	for i := range cells {
		into[i] = &cells[i]
	}
	var out [][]string
	bytes, run := 0, 0 // run: rows of out with the same by-values as the last one
	for rows.Next() {
		if len(out) == most.rows || bytes > most.bytes {
			return nil, &LookupManyError{Rows: most.rows, Bytes: most.bytes}
		}
		if err := rows.Scan(into...); err != nil {
			return nil, err
		}
		row := make([]string, width)
		null, known := -1, false
		for i, c := range cells {
			row[i] = c.String
			bytes += len(c.String)
			if i >= by && !c.Valid {
				null = i
			} else if i >= by {
				known = true
			}
		}
		switch {
		case null < 0:
			if run++; len(out) > 0 && !slices.Equal(out[len(out)-1][:by], row[:by]) {
				run = 1
			}
			out = append(out, row)
			if most.each > 0 && run > most.each {
				return nil, &LookupManyError{Rows: most.each, Bytes: most.bytes}
			}
		case known:
			return nil, &LookupNullError{By: row[:by], Column: columns[null]}
		}
	}
	return out, rows.Err()
}

// A SlowLookupError reports a lookup that took too long, so the server or the client ended it. It
// may be temporary.
type SlowLookupError struct {
	Limit time.Duration
	Err   error
}

// Error implements error.
func (e *SlowLookupError) Error() string {
	return fmt.Sprintf("look up: no answer within %s: %v", e.Limit, e.Err)
}

// Unwrap returns the error of the server or the client.
func (e *SlowLookupError) Unwrap() error { return e.Err }

// An answerSize bounds the rows of a lookup result and the bytes of their columns, and so the
// worker's memory. each bounds the consecutive rows of one lookup key, unless it is 0.
type answerSize struct{ rows, bytes, each int }

const (
	maxLookupBytes = 4 << 20
	maxLookupRows  = 20_000 // for several lookup keys
	// maxAnswerRows, for one lookup key, is twice the number of keys that an outbox row may produce
	// at the largest limits of a map.
	maxAnswerRows = 100_000
)

// A LookupManyError reports that a lookup found more than is read at a time. Use fewer lookup keys.
type LookupManyError struct{ Rows, Bytes int }

// Error implements error.
func (e *LookupManyError) Error() string {
	return fmt.Sprintf("look up: more than %d rows, or %d bytes", e.Rows, e.Bytes)
}

// A LookupShapeError reports that a lookup's SQL selects the wrong columns.
type LookupShapeError struct {
	Want    int
	Columns []string
}

// Error implements error.
func (e *LookupShapeError) Error() string {
	return fmt.Sprintf("selects %d columns (%s), must be %d: the lookup columns, then the value",
		len(e.Columns), strings.Join(e.Columns, ", "), e.Want)
}

// A LookupNullError reports that a lookup found only some of the values that belong together.
type LookupNullError struct {
	By     []string
	Column string
}

// Error implements error.
func (e *LookupNullError) Error() string {
	return fmt.Sprintf("for %q %s is NULL, and what goes along with it is not: select COALESCE(%[2]s, '') for it, or leave such rows out", e.By, e.Column)
}

// Contract: session settings, no lock, no row.
const (
	setUngroupedSQL = "SET SESSION sql_mode = '" + sqlMode + "'"
	setGroupedSQL   = "SET SESSION sql_mode = '" + lookupMode + "'"
)

// modeLimit bounds the statement that restores the mode.
const modeLimit = time.Second

// lookUpUngrouped runs a lookup that ONLY_FULL_GROUP_BY refuses, as earlier releases did, so an
// upgrade does not stop invalidation. A statement that aggregates all IDs into one row runs for one
// ID at a time.
func (l *Lookups) lookUpUngrouped(ctx context.Context, conn *sql.Conn, query string, by [][]string, values, each int, refusal error) (found [][]string, err error) {
	if _, err := conn.ExecContext(ctx, setUngroupedSQL); err != nil {
		return nil, fmt.Errorf("look up: %w", err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), modeLimit)
		defer cancel()
		if _, err := conn.ExecContext(ctx, setGroupedSQL); err != nil {
			dberr.Discard(conn) // whose mode is unknown
		}
	}()
	most := len(by)
	if mysqlerr.Number(refusal) == mysqlerr.MixedGroups {
		most = 1
	}
	for ; len(by) > 0; by = by[most:] {
		rows, err := l.lookUp(ctx, conn, query, by[:most], values, each)
		if err != nil {
			return nil, err
		}
		found = append(found, rows...)
	}
	l.ungrouped.Store(query, refusal)
	return found, nil
}

// Ungrouped returns the error of a lookup that ONLY_FULL_GROUP_BY refused earlier, or nil.
func (l *Lookups) Ungrouped(query string) error {
	err, _ := l.ungrouped.Load(query)
	refusal, _ := err.(error)
	return refusal
}

// A LookupSnapshot runs lookups with the session settings of a worker, on one snapshot of the data.
// It is for one goroutine.
type LookupSnapshot struct {
	lookups *Lookups
	tx      *sql.Tx
}

// LookupSnapshot begins a read-only transaction. It takes no lock and writes nothing. Close ends
// it.
func (l *Lookups) LookupSnapshot(ctx context.Context) (*LookupSnapshot, error) {
	tx, err := l.db.lookups.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
	if err != nil {
		return nil, fmt.Errorf("look up: %w", err)
	}
	return &LookupSnapshot{l, tx}, nil
}

// Lookup is like [Lookups.Lookup], except that a lookup that ONLY_FULL_GROUP_BY refuses fails.
func (l *LookupSnapshot) Lookup(ctx context.Context, query string, by [][]string, values int) ([][]string, error) {
	return l.lookups.lookUp(ctx, l.tx, query, by, values, 0)
}

// Select returns the result of a query without arguments that selects the given number of columns.
// It has the time limit of a lookup.
func (l *LookupSnapshot) Select(ctx context.Context, query string, columns int) ([][]string, error) {
	ctx, cancel := context.WithTimeout(ctx, l.lookups.db.Config.LookupTimeout+lookupGrace)
	defer cancel()
	return runLookup(ctx, l.tx, query, nil, columns, 0, answerSize{math.MaxInt, math.MaxInt, 0})
}

// Close ends the transaction.
func (l *LookupSnapshot) Close() error { return l.tx.Rollback() }
