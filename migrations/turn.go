package migrations

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// inTurn makes migrating processes take turns around fn, by a MySQL user lock. The lock belongs to a session, so a
// process that dies frees it at once. It is named after the schema, because user locks are global to the server, and
// hashed, because their names end at 64 characters (SHA1 and MD5 are gone from MySQL 9). db must allow two connections.
//
// It is not given to goose as a locker: goose looks for pending migrations, and makes its version table, before it
// locks, so that replicas which start together would stop with "missing zero version migration".
func inTurn(ctx context.Context, db *sql.DB, fn func() error) (err error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("wait for the turn to migrate: %w", err)
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	if err := lock(ctx, conn); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unlock(context.WithoutCancel(ctx), conn)) }()
	if err := repairVersionTable(ctx, conn); err != nil {
		return err
	}
	return fn()
}

// Contract: one row at most, into goose's own table; repeating it does nothing.
const repairSQL = "INSERT INTO " + VersionTable + " (version_id, is_applied) SELECT 0, 1 FROM DUAL WHERE NOT EXISTS (SELECT 1 FROM " + VersionTable + ")"

// repairVersionTable finishes the work of a process that died after it made goose's version table and before it wrote
// the first row, without which goose refuses every verb.
func repairVersionTable(ctx context.Context, conn *sql.Conn) error {
	var n int
	if err := conn.QueryRowContext(ctx, tableSQL, VersionTable).Scan(&n); err != nil || n == 0 {
		return err
	}
	if _, err := conn.ExecContext(ctx, repairSQL); err != nil {
		return fmt.Errorf("repair the version table: %w", err)
	}
	return nil
}

// turnSeconds bounds the wait for the others. A migration is one small DDL statement; what takes longer is waiting for
// a metadata lock, and that should be seen.
const turnSeconds = 120

// Contract: takes no row lock; waits up to turnSeconds; repeating it in one session only counts up.
const lockSQL = "SELECT GET_LOCK(CONCAT('unstale.migrate.', LEFT(SHA2(DATABASE(), 256), 32)), ?)"

// Contract: frees one count of the lock; harmless if it is not held.
const unlockSQL = "SELECT RELEASE_LOCK(CONCAT('unstale.migrate.', LEFT(SHA2(DATABASE(), 256), 32)))"

func lock(ctx context.Context, conn *sql.Conn) error {
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

func unlock(ctx context.Context, conn *sql.Conn) error {
	var freed sql.NullInt64
	if err := conn.QueryRowContext(ctx, unlockSQL).Scan(&freed); err != nil {
		return fmt.Errorf("end the turn to migrate: %w", err)
	}
	if freed.Int64 != 1 {
		return errors.New("end the turn to migrate: the lock was lost on the way; run `unstale migrate status`")
	}
	return nil
}
