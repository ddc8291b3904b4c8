package outbox

import (
	"context"
	"database/sql"
)

// A Pool is a pool of database connections, such as *sql.DB or *sqlx.DB.
type Pool interface {
	Conn(ctx context.Context) (*sql.Conn, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}
