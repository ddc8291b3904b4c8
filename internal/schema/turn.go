package schema

import (
	"cmp"
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/unstale/unstale/internal/dberr"
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
		defer func() { err = cmp.Or(err, t.lease.free(task)) }()
		return fn(t)
	})
}

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
	defer dberr.Discard(conn)
	writers, err := dberr.OtherWriters(ctx, conn)
	if err != nil {
		return fmt.Errorf("wait for the turn to %s: %w", task, err)
	}
	clustered := writers != ""
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

// leaseTime is how long a lease lasts without a renewal. Tests shorten it.
var leaseTime = 30 * time.Second

// poll is how often a process that waits for a lease reads it.
const poll = 200 * time.Millisecond

// table has the lease. No migration makes it: it exists before the first step.
const table = "cache_outbox_turn"

const createSQL = "CREATE TABLE IF NOT EXISTS " + table + ` (one TINYINT UNSIGNED NOT NULL, owner VARCHAR(255) NOT NULL,
expires_at DATETIME(6) NOT NULL, PRIMARY KEY (one)) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin`

// Contract for all: one row by its primary key, in a separate transaction. Of two sessions on two
// servers, only one can commit. REPLACE, because a migrator lacks the privilege UPDATE.
const (
	holderSQL = "SELECT owner, DATE_FORMAT(expires_at, '%Y-%m-%d %H:%i:%s.%f'), expires_at <= UTC_TIMESTAMP(6) FROM " + table + " WHERE one = 1"
	takeSQL   = "INSERT INTO " + table + " (one, owner, expires_at) VALUES (1, ?, UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND)"
	renewSQL  = "REPLACE INTO " + table + " (one, owner, expires_at) SELECT 1, ?, UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND FROM " + table + " WHERE one = 1 AND owner = ?"
	robSQL    = renewSQL + " AND expires_at <= UTC_TIMESTAMP(6)"
	endSQL    = "DELETE FROM " + table + " WHERE one = 1 AND owner = ?"
)

// Contract: of the session only. wait_timeout frees the user lock of a process that is frozen.
const leaseSessionSQL = "SET SESSION autocommit = 1, innodb_lock_wait_timeout = 1, wait_timeout = ?"

// A lease is a committed row with an owner and an expiry by the database's clock. A goroutine
// renews it. A process that waits takes it over when it has expired and did not change for as long
// as it lasts. The second condition is needed because clocks of servers differ, and because an
// ALTER on a Galera cluster delays renewals until it ends, on one node later than on another.
type lease struct {
	conn   *sql.Conn
	owner  string
	cancel context.CancelFunc
	keeper sync.WaitGroup // renews it until cancel

	mu      sync.Mutex
	renewed time.Time // when the last renewal was acknowledged
	lost    error
}

// takeLease waits until this process has the lease. conn is used for it until it ends.
func takeLease(ctx context.Context, conn *sql.Conn, task string, say func(notice string)) (*lease, error) {
	host, _ := os.Hostname() // may stay empty
	l := &lease{conn: conn, owner: fmt.Sprintf("%s, process %d on %.180s, %s", task, os.Getpid(), host, rand.Text()[:8])}
	_, err := conn.ExecContext(ctx, leaseSessionSQL, max(1, int(leaseTime.Seconds())))
	if err == nil {
		err = l.acquire(ctx, say)
	}
	switch {
	case mysqlerr.Number(err) == mysqlerr.NoRight:
		return nil, fmt.Errorf("%w; GRANT CREATE, SELECT, INSERT, DELETE ON %s to this account", err, table)
	case err != nil:
		return nil, err
	}
	l.renewed = time.Now()
	ctx, l.cancel = context.WithCancel(context.WithoutCancel(ctx))
	l.keeper.Go(func() {
		for sleep.For(ctx, min(leaseTime/6, mostIdle)) == nil {
			_ = l.renew() // returns it again before the next step
		}
	})
	return l, nil
}

// acquire returns when the lease is taken, or taken over.
func (l *lease) acquire(ctx context.Context, say func(notice string)) error {
	var seen, seenUntil, owner, until string
	for began, since := time.Now(), time.Now(); ; {
		var expired bool
		var n int64
		err := l.conn.QueryRowContext(ctx, holderSQL).Scan(&owner, &until, &expired)
		switch {
		case mysqlerr.Number(err) == mysqlerr.NoTable:
			_, err = l.exec(ctx, createSQL)
		case errors.Is(err, sql.ErrNoRows):
			n, err = l.exec(ctx, takeSQL, l.owner, leaseTime.Microseconds())
		case err != nil:
		case owner != seen:
			say(fmt.Sprintf("waits for %q, which changes the schema and has the turn until %.19s UTC unless it renews it", owner, until))
			fallthrough
		case until != seenUntil:
			seen, seenUntil, since = owner, until, time.Now()
		case expired && time.Since(since) > leaseTime:
			if n, err = l.exec(ctx, robSQL, l.owner, leaseTime.Microseconds(), owner); n > 0 {
				say(fmt.Sprintf("takes over the turn of %q, which has not renewed it", owner))
			}
		}
		another := mysqlerr.IsContention(err) || mysqlerr.Number(err) == mysqlerr.Duplicate
		switch {
		case n > 0 || err != nil && !another:
			return err
		case time.Since(began) > patience:
			return fmt.Errorf("%q has had it for %s; run it again when that process has ended", seen, patience)
		}
		if err := sleep.For(ctx, poll); err != nil {
			return err
		}
	}
}

// renew returns an error if this process has lost the lease, or cannot renew it.
func (l *lease) renew() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lost != nil {
		return l.lost
	}
	frozen := time.Since(l.renewed)
	n, err := l.exec(context.Background(), renewSQL, l.owner, leaseTime.Microseconds(), l.owner)
	switch {
	case frozen > leaseTime:
		l.lost = fmt.Errorf("the turn is lost: this process did not run for %s, and a turn lasts %s without a renewal; run it again", frozen.Round(time.Second), leaseTime)
	case err != nil:
		l.lost = fmt.Errorf("renew the turn: %w; run it again", err)
	case n == 0:
		l.lost = fmt.Errorf("the turn is lost: this process did not renew it within %s, and another one has taken it over; run it again", leaseTime)
	}
	l.renewed = time.Now()
	return l.lost
}

// free frees the lease. It returns an error if another process has taken it over.
func (l *lease) free(task string) error {
	l.cancel()
	l.keeper.Wait()
	n, err := l.exec(context.Background(), endSQL, l.owner)
	switch {
	case err != nil:
		return fmt.Errorf("end the turn to %s: %w", task, err)
	case n == 0:
		return fmt.Errorf("end the turn to %s: another process has taken it over; run `unstale %[1]s status`", task)
	}
	return nil
}

func (l *lease) exec(ctx context.Context, statement string, args ...any) (int64, error) {
	r, err := l.conn.ExecContext(ctx, statement, args...)
	if err != nil {
		return 0, err
	}
	return r.RowsAffected()
}

// patience bounds how long a statement is tried again that is refused a lock.
const patience = turnSeconds * time.Second

// Patiently runs a statement again while it is refused its lock (1205), for two minutes at most;
// what it is called in errors and in the notice that it waits comes from the error. Before each
// try, it returns an error if this process has lost the turn. The session's lock_wait_timeout
// should be short: what has queued behind a statement that waited is let through for as long as it
// waited, because while an ALTER waits for a transaction, inserts wait behind the ALTER. run gets a
// context that does not end: a statement in hand is finished. When ctx ends, one that was refused
// its lock is not tried again; the error wraps ctx's and the server's.
func (t *Turn) Patiently(ctx context.Context, called func(error) string, run func(context.Context) error) error {
	for first, waits := time.Now(), false; ; {
		begun := time.Now()
		if t.lease != nil {
			if err := t.lease.renew(); err != nil {
				return err
			}
		}
		err := run(context.WithoutCancel(ctx))
		if mysqlerr.Number(err) != mysqlerr.LockTimeout {
			return err
		}
		if time.Since(first) > patience {
			return fmt.Errorf("%s has waited for a lock for %s; see SHOW PROCESSLIST for who holds it, and run it again: %w", called(err), patience, err)
		}
		if !waits {
			waits = true
			t.say(called(err) + " waits for a lock on its table; a statement of a killed migration or a long transaction may hold it")
		}
		if ended := sleep.For(ctx, time.Since(begun)); ended != nil {
			return fmt.Errorf("%w, while %s waited for a lock: %w", ended, called(err), err)
		}
	}
}
