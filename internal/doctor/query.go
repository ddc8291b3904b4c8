package doctor

import (
	"context"
	"database/sql"
	"fmt"
)

// A row is one result row of a query, by the column names that the server returns.
type row map[string]string

// queryRows returns the rows of a query, NULL as "". The columns of SHOW differ between servers.
func queryRows(ctx context.Context, db *sql.DB, query string, args ...any) (all []row, err error) {
	rows, err := db.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }() // rows.Err reports what went wrong
	columns, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	for rows.Next() {
		cells, into := make([]sql.NullString, len(columns)), make([]any, len(columns))
		for i := range cells {
			into[i] = &cells[i]
		}
		if err := rows.Scan(into...); err != nil {
			return nil, err
		}
		one := row{}
		for i, name := range columns {
			one[name] = cells[i].String
		}
		all = append(all, one)
	}
	return all, rows.Err()
}

// texts returns the only column of a query.
func texts(ctx context.Context, db *sql.DB, query string, args ...any) (all []string, err error) {
	rows, err := queryRows(ctx, db, query, args...)
	for _, r := range rows {
		for _, text := range r {
			all = append(all, text)
		}
	}
	return all, err
}

// first returns the first of several columns that a row has: MySQL 8.4 has renamed columns that
// MariaDB has not.
func (r row) first(names ...string) string {
	for _, name := range names {
		if v, ok := r[name]; ok {
			return v
		}
	}
	return ""
}

// count formats a number of things. The plural is the singular with an s, unless given.
func count(n int, singular string, plural ...string) string {
	switch {
	case n == 1:
		return "1 " + singular
	case len(plural) > 0:
		return fmt.Sprint(n, " ", plural[0])
	}
	return fmt.Sprint(n, " ", singular, "s")
}
