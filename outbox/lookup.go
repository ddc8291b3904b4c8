package outbox

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
)

// Lookup runs a lookup of the map on a connection of its own, outside any claim: query has one `?`, which
// becomes the list of by-values (tuples when they have several columns). Each row that comes back is the
// by-values and the value, as text; rows whose value is NULL say nothing and are left out. It sees what is
// committed now. ctx bounds it. An error of the server itself is a *mysql.MySQLError.
func (s *Store) Lookup(ctx context.Context, query string, by [][]string) ([][]string, error) {
	if len(by) == 0 {
		return nil, nil
	}
	width := len(by[0])
	args := make([]any, 0, width*len(by))
	for _, values := range by {
		for _, v := range values {
			args = append(args, v)
		}
	}
	tuple := "?"
	if width > 1 {
		tuple = "(?" + strings.Repeat(",?", width-1) + ")"
	}
	filled := strings.Replace(query, "?", tuple+strings.Repeat(","+tuple, len(by)-1), 1)
	rows, err := s.side.QueryContext(ctx, filled, args...)
	if err != nil {
		return nil, fmt.Errorf("look up: %w", err)
	}
	defer func() { _ = rows.Close() }() // Err tells what went wrong
	return readLookup(rows, width+1)
}

func readLookup(rows *sql.Rows, width int) ([][]string, error) {
	columns, err := rows.Columns()
	if err != nil {
		return nil, fmt.Errorf("look up: %w", err)
	}
	if len(columns) != width {
		return nil, &LookupShapeError{Want: width, Columns: columns}
	}
	var out [][]string
	for rows.Next() {
		cells := make([]sql.NullString, width)
		into := make([]any, width)
		for i := range cells {
			into[i] = &cells[i]
		}
		if err := rows.Scan(into...); err != nil {
			return nil, fmt.Errorf("look up: %w", err)
		}
		if !cells[width-1].Valid {
			continue
		}
		row := make([]string, width)
		for i, c := range cells {
			row[i] = c.String
		}
		out = append(out, row)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("look up: %w", err)
	}
	return out, nil
}

// A LookupShapeError says that a lookup's SQL selects the wrong columns.
type LookupShapeError struct {
	Want    int
	Columns []string
}

// Error implements error.
func (e *LookupShapeError) Error() string {
	return fmt.Sprintf("look up: selects %d columns (%s), wanted %d: what it looks up by, then the value",
		len(e.Columns), strings.Join(e.Columns, ", "), e.Want)
}
