package migrations

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// turn makes migrating processes take turns: goose's SessionLocker over a MySQL user lock. The lock belongs
// to the session, so a process that dies frees it at once. It is named after the schema, because user locks
// are global to the server, and hashed, because their names end at 64 characters (SHA1 and MD5 are gone from MySQL 9).
type turn struct{}

// turnSeconds bounds the wait for the others. A migration is one small DDL statement; what takes longer is
// waiting for a metadata lock, and that should be seen.
const turnSeconds = 120

// Contract: takes no row lock; waits up to turnSeconds; repeating it in one session only counts up.
const lockSQL = "SELECT GET_LOCK(CONCAT('unstale.migrate.', LEFT(SHA2(DATABASE(), 256), 32)), ?)"

// Contract: frees one count of the lock; harmless if it is not held.
const unlockSQL = "SELECT RELEASE_LOCK(CONCAT('unstale.migrate.', LEFT(SHA2(DATABASE(), 256), 32)))"

// SessionLock implements goose's lock.SessionLocker.
func (turn) SessionLock(ctx context.Context, conn *sql.Conn) error {
	var got sql.NullInt64
	if err := conn.QueryRowContext(ctx, lockSQL, turnSeconds).Scan(&got); err != nil {
		return fmt.Errorf("wait for the turn to migrate: %w", err)
	}
	if got.Int64 != 1 {
		return fmt.Errorf("wait for the turn to migrate: another process has been migrating for %d s; "+
			"see SHOW PROCESSLIST for what it waits for", turnSeconds)
	}
	return nil
}

// SessionUnlock implements goose's lock.SessionLocker.
func (turn) SessionUnlock(ctx context.Context, conn *sql.Conn) error {
	var freed sql.NullInt64
	if err := conn.QueryRowContext(ctx, unlockSQL).Scan(&freed); err != nil {
		return fmt.Errorf("end the turn to migrate: %w", err)
	}
	if freed.Int64 != 1 {
		return errors.New("end the turn to migrate: the lock was lost on the way; run `unstale migrate status`")
	}
	return nil
}
