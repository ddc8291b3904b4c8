package schema

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/unstale/unstale/internal/mysqlerr"
	"github.com/unstale/unstale/internal/sleep"
)

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
		err = l.wait(ctx, say)
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

// wait returns when the lease is taken, or taken over.
func (l *lease) wait(ctx context.Context, say func(notice string)) error {
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

// end frees the lease. It returns an error if another process has taken it over.
func (l *lease) end(task string) error {
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
