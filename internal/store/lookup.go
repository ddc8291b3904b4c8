package store

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/unstale/unstale/internal/mysqlerr"
)

// Lookup runs a lookup of the map in a read-only session of a pool of its own, outside any claim:
// query has one `?`, which becomes the list of by-values (tuples when they have several columns).
// Each row that comes back is the by-values and so many values, as text; rows whose values are NULL
// say nothing and are left out, and where only some are, that is a LookupNullError. It sees what is
// committed now. The server ends it after LookupTimeout, with a SlowLookupError. An error of the
// server itself is a *mysql.MySQLError. A lookup that ONLY_FULL_GROUP_BY refuses runs without that
// mode, and Ungrouped reports it.
func (s *Store) Lookup(ctx context.Context, query string, by [][]string, values int) ([][]string, error) {
	if len(by) == 0 {
		return nil, nil
	}
	conn, err := s.lookupSession(ctx)
	if err != nil {
		return nil, fmt.Errorf("look up: %w", err)
	}
	defer func() { _ = conn.Close() }() // back to the pool
	found, err := s.lookUp(ctx, conn, query, by, values)
	if IsGrouping(err) {
		return s.lookUpUngrouped(ctx, conn, query, by, values, err)
	}
	return found, err
}

// A querier is a session, or a transaction of one.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// lookUp runs a lookup once.
func (s *Store) lookUp(ctx context.Context, on querier, query string, by [][]string, values int) ([][]string, error) {
	width := len(by[0])
	args := make([]any, 0, width*len(by))
	for _, values := range by {
		for _, v := range values {
			args = append(args, v)
		}
	}
	most := maxLookupRows
	if len(by) == 1 { // it cannot be cut
		most = math.MaxInt
	}
	limited, cancel := context.WithTimeout(ctx, s.cfg.LookupTimeout+lookupGrace)
	defer cancel()
	found, err := runLookup(limited, on, fillLookup(query, width, len(by)), args, width, values, most)
	switch {
	case err == nil:
		return found, nil
	case ctx.Err() == nil && (isEnded(err) || limited.Err() != nil):
		return nil, &SlowLookupError{s.cfg.LookupTimeout, err}
	case mysqlerr.Number(err) == mysqlerr.ReadOnlySession:
		return nil, fmt.Errorf("look up: it writes, and a lookup's session is read-only; let it only read: %w", err)
	}
	return nil, fmt.Errorf("look up: %w", err)
}

// lookupSession returns a session of the pool. Time to connect is not the lookup's.
func (s *Store) lookupSession(ctx context.Context) (*sql.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.StatementTimeout)
	defer cancel()
	return s.lookups.Conn(ctx)
}

// fillLookup puts a list of that many tuples in the place of the query's `?`.
func fillLookup(query string, width, count int) string {
	tuple := "?"
	if width > 1 {
		tuple = "(?" + strings.Repeat(",?", width-1) + ")"
	}
	return strings.Replace(query, "?", tuple+strings.Repeat(","+tuple, count-1), 1)
}

func runLookup(ctx context.Context, on querier, query string, args []any, by, values, most int) ([][]string, error) {
	rows, err := on.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }() // rows.Err reports what went wrong
	return readLookup(rows, by, values, most)
}

func readLookup(rows *sql.Rows, by, values, most int) ([][]string, error) {
	columns, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	width := by + values
	if len(columns) != width {
		return nil, &LookupShapeError{Want: width, Columns: columns}
	}
	var out [][]string
	for rows.Next() {
		if len(out) == most {
			return nil, &LookupManyError{Rows: most}
		}
		cells := make([]sql.NullString, width)
		into := make([]any, width)
		for i := range cells {
			into[i] = &cells[i]
		}
		if err := rows.Scan(into...); err != nil {
			return nil, err
		}
		row := make([]string, width)
		null, known := -1, false
		for i, c := range cells {
			row[i] = c.String
			if i >= by && !c.Valid {
				null = i
			} else if i >= by {
				known = true
			}
		}
		switch {
		case null < 0:
			out = append(out, row)
		case known:
			return nil, &LookupNullError{By: row[:by], Column: columns[null]}
		}
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	return out, nil
}

// A SlowLookupError says that the server, or the client in its place, ended a lookup that took too long. It may pass.
type SlowLookupError struct {
	Limit time.Duration
	Err   error
}

// Error implements error.
func (e *SlowLookupError) Error() string {
	return fmt.Sprintf("look up: no answer within %s: %v", e.Limit, e.Err)
}

// Unwrap returns what the server or the client said.
func (e *SlowLookupError) Unwrap() error { return e.Err }

// maxLookupRows bounds the rows that a lookup returns for several questions, and with them the
// worker's memory.
const maxLookupRows = 20_000

// A LookupManyError says that a lookup found more rows for several questions than are read at a time.
// Ask fewer questions.
type LookupManyError struct{ Rows int }

// Error implements error.
func (e *LookupManyError) Error() string { return fmt.Sprintf("look up: more than %d rows", e.Rows) }

// A LookupShapeError says that a lookup's SQL selects the wrong columns.
type LookupShapeError struct {
	Want    int
	Columns []string
}

// Error implements error.
func (e *LookupShapeError) Error() string {
	return fmt.Sprintf("selects %d columns (%s), wanted %d: what it looks up by, then the value",
		len(e.Columns), strings.Join(e.Columns, ", "), e.Want)
}

// A LookupNullError says that of values that go together a lookup found only some.
type LookupNullError struct {
	By     []string
	Column string
}

// Error implements error.
func (e *LookupNullError) Error() string {
	return fmt.Sprintf("for %q %s is NULL, and what goes along with it is not: select COALESCE(%[2]s, '') for it, or leave such rows out", e.By, e.Column)
}
