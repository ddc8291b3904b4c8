// Package ddl changes a schema beside a running shop: processes take turns, and a statement that
// has to wait for a table lets through what has queued behind it.
package ddl

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
)

// InTurn makes processes take turns around fn, by a user lock of MySQL. The lock belongs to a
// session, so a process that dies frees it at once. It is named after the task and the schema,
// because user locks are global to the server, and hashed, because their names end at 64 characters
// (SHA1 and MD5 are gone from MySQL 9). db must allow two connections; fn gets the one that holds
// the lock, which is closed afterwards, whatever fn has set in its session.
func InTurn(ctx context.Context, db *sql.DB, task string, fn func(*sql.Conn) error) (err error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("wait for the turn to %s: %w", task, err)
	}
	defer func() {
		_ = conn.Raw(func(any) error { return driver.ErrBadConn }) // which the pool does not keep
		_ = conn.Close()                                           // Raw has closed it
	}()
	if err := lock(ctx, conn, task); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unlock(context.WithoutCancel(ctx), conn, task)) }()
	return fn(conn)
}

// turnSeconds bounds the wait for the others. A statement is small; what takes longer is waiting
// for a metadata lock, and that should be seen.
const turnSeconds = 120

// Contract: takes no row lock; waits up to turnSeconds; repeating it in one session only counts up.
const lockSQL = "SELECT GET_LOCK(CONCAT('unstale.', ?, '.', LEFT(SHA2(DATABASE(), 256), 32)), ?)"

// Contract: frees one count of the lock; harmless if it is not held.
const unlockSQL = "SELECT RELEASE_LOCK(CONCAT('unstale.', ?, '.', LEFT(SHA2(DATABASE(), 256), 32)))"

func lock(ctx context.Context, conn *sql.Conn, task string) error {
	var got sql.NullInt64
	if err := conn.QueryRowContext(ctx, lockSQL, task, turnSeconds).Scan(&got); err != nil {
		return fmt.Errorf("wait for the turn to %s: %w", task, err)
	}
	if got.Int64 != 1 {
		return fmt.Errorf("wait for the turn to %s: another process has had it for %d s; see SHOW PROCESSLIST for what it waits for", task, turnSeconds)
	}
	return nil
}

func unlock(ctx context.Context, conn *sql.Conn, task string) error {
	var freed sql.NullInt64
	if err := conn.QueryRowContext(ctx, unlockSQL, task).Scan(&freed); err != nil {
		return fmt.Errorf("end the turn to %s: %w", task, err)
	}
	if freed.Int64 != 1 {
		return fmt.Errorf("end the turn to %s: the lock was lost on the way; run `unstale %[1]s status`", task)
	}
	return nil
}
