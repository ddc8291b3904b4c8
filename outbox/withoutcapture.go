package outbox

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
)

// Contract: of the session only. The triggers of "unstale capture" look at it.
const (
	captureOffSQL = "SET @unstale_capture = 'off'"
	captureOnSQL  = "SET @unstale_capture = NULL"
)

// WithoutCapture runs fn with a connection on which the triggers of "unstale capture" insert no rows, for a bulk job that
// inserts coarser ones itself. Afterwards they do again, also if fn returns an error or panics; a connection on which that fails is
// closed, and not pooled. The error is fn's, or that of the connection. Safe for concurrent use; fn must not keep the connection.
func WithoutCapture(ctx context.Context, db Pool, fn func(conn *sql.Conn) error) error {
	conn, err := db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("switch capture off: %w", err)
	}
	defer func() {
		if _, failed := conn.ExecContext(context.WithoutCancel(ctx), captureOnSQL); failed != nil {
			_ = conn.Raw(func(any) error { return driver.ErrBadConn }) // which the pool does not keep
		}
		_ = conn.Close() // or Raw has closed it
	}()
	if _, err := conn.ExecContext(ctx, captureOffSQL); err != nil {
		return fmt.Errorf("switch capture off: %w", err)
	}
	return fn(conn)
}
