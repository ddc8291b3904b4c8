package schema

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/unstale/unstale/internal/mysqlerr"
	"github.com/unstale/unstale/internal/sleep"
)

// A Turn is the right to change a schema while no other process does. It ends with the function
// that [InTurn] gave it to.
type Turn struct {
	say   func(notice string)
	lease *lease // nil if no other server takes writes
}

// InTurn runs fn while no other process runs one for the database: under the lock of [Locked], and
// on a cluster also under a lease, which all tasks share. It calls say when it waits for the lease.
// db must allow two connections.
func InTurn(ctx context.Context, db *sql.DB, task string, say func(notice string), fn func(*Turn) error) error {
	return locked(ctx, db, task, say, func(conn *sql.Conn, clustered bool) (err error) {
		t := &Turn{say: say}
		if !clustered {
			defer keepAlive(conn)()
			return fn(t)
		}
		if t.lease, err = takeLease(ctx, conn, task, say); err != nil {
			return fmt.Errorf("wait for the turn to %s: %w", task, err)
		}
		defer func() { err = cmp.Or(err, t.lease.end(task)) }()
		return fn(t)
	})
}

// Contract: no lock. A row means that other servers take writes too: of Galera, or of group
// replication with several primaries.
const writersSQL = `SHOW GLOBAL VARIABLES WHERE Variable_name = 'wsrep_on' AND Value = 'ON'
OR Variable_name = 'group_replication_single_primary_mode' AND Value = 'OFF'`

// Locked makes the processes on one server run fn one at a time, by a user lock of MySQL. The lock
// belongs to a session, so the server frees it when a process dies. It is named after the task and
// the schema, because user locks are global to the server, and hashed, because their names end at
// 64 characters (SHA1 and MD5 are gone from MySQL 9). If a cluster prohibits user locks
// (pxc_strict_mode), fn runs without one, and say is called.
func Locked(ctx context.Context, db *sql.DB, task string, say func(notice string), fn func() error) error {
	return locked(ctx, db, task, say, func(conn *sql.Conn, _ bool) error {
		defer keepAlive(conn)()
		return fn()
	})
}

// locked implements Locked. fn gets the connection that holds the lock, which it must keep busy, and
// whether the server is one of a cluster.
func locked(ctx context.Context, db *sql.DB, task string, say func(notice string), fn func(conn *sql.Conn, clustered bool) error) (err error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("wait for the turn to %s: %w", task, err)
	}
	defer Discard(conn)
	var name, value string
	err = conn.QueryRowContext(ctx, writersSQL).Scan(&name, &value)
	clustered := err == nil
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return fmt.Errorf("wait for the turn to %s: %w", task, err)
	}
	var got sql.NullInt64
	err = conn.QueryRowContext(ctx, lockSQL, task, turnSeconds).Scan(&got)
	switch {
	case clustered && mysqlerr.Number(err) == mysqlerr.Unknown:
		say(fmt.Sprintf("%v; only the table %s keeps processes apart", err, table))
		return fn(conn, clustered)
	case err != nil:
		return fmt.Errorf("wait for the turn to %s: %w", task, err)
	case got.Int64 != 1:
		return fmt.Errorf("wait for the turn to %s: another process has had it for %d s; see SHOW PROCESSLIST for what it waits for", task, turnSeconds)
	}
	defer func() { err = cmp.Or(err, unlock(context.WithoutCancel(ctx), conn, task)) }()
	return fn(conn, clustered)
}

// mostIdle is how long the session of a turn is idle at most: proxies end sessions that are idle
// for a few seconds.
const mostIdle = time.Second

// keepAlive uses a session that is otherwise idle, until the function that it returns is called.
func keepAlive(conn *sql.Conn) (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var keeper sync.WaitGroup
	keeper.Go(func() {
		for sleep.For(ctx, mostIdle) == nil {
			_, _ = conn.ExecContext(context.Background(), "DO 0") // unlock returns the error, if it lasts
		}
	})
	return func() {
		cancel()
		keeper.Wait()
	}
}

// Discard closes a connection instead of returning it to the pool with its settings.
func Discard(conn *sql.Conn) {
	_ = conn.Raw(func(any) error { return driver.ErrBadConn }) // which the pool does not keep
	_ = conn.Close()                                           // Raw has closed it
}

// turnSeconds bounds the wait for the others. A statement is small; what takes longer is waiting
// for a metadata lock, and that should be seen.
const turnSeconds = 120

// Contract: takes no row lock; waits up to turnSeconds; repeating it in one session only counts up.
const lockSQL = "SELECT GET_LOCK(CONCAT('unstale.', ?, '.', LEFT(SHA2(DATABASE(), 256), 32)), ?)"

// Contract: frees one count of the lock; harmless if it is not held.
const unlockSQL = "SELECT RELEASE_LOCK(CONCAT('unstale.', ?, '.', LEFT(SHA2(DATABASE(), 256), 32)))"

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
