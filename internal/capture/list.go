package capture

import (
	"context"
	"database/sql"
	"fmt"
)

// list returns the rows of a query, each converted by one. what names them in errors.
func list[T any](ctx context.Context, db *sql.DB, what string, one func(scan func(...any) error) (T, error), query string, args ...any) (all []T, err error) {
	rows, err := db.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", what, err)
	}
	defer rows.Close()
	for rows.Next() {
		t, err := one(rows.Scan)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", what, err)
		}
		all = append(all, t)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("read %s: %w", what, err)
	}
	return all, nil
}
