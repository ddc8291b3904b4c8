package outbox

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
)

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
// comes from fn or from the connection. WithoutCapture is safe for concurrent use.
func WithoutCapture(ctx context.Context, db Pool, fn func(conn *sql.Conn) error) error {
	conn, err := db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("switch capture off: %w", err)
	}
	defer func() {
		if _, failed := conn.ExecContext(context.WithoutCancel(ctx), captureOnSQL); failed != nil {
			// the pool does not keep it then
			_ = conn.Raw(func(any) error { return driver.ErrBadConn })
		}
		_ = conn.Close() // or Raw has closed it
	}()
	if _, err := conn.ExecContext(ctx, captureOffSQL); err != nil {
		return fmt.Errorf("switch capture off: %w", err)
	}
	return fn(conn)
}
