package outbox

import (
	"context"
	"database/sql"
)

// A Pool gives connections and runs statements outside transactions: *sql.DB and *sqlx.DB do.
type Pool interface {
	Conn(ctx context.Context) (*sql.Conn, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}
