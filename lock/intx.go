package lock

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"

	"github.com/unstale/unstale/internal/mysqlerr"
	"github.com/unstale/unstale/lock/internal/locking"
)

// A Pool gives connections: *sql.DB and *sqlx.DB do. It must lead to the database that Config.MySQL
// names.
type Pool interface {
	Conn(ctx context.Context) (*sql.Conn, error)
}

// InTx runs fn in a transaction that cannot interleave with one of another holder, and commits it.
// An error or a panic of fn rolls back. The transaction begins now, after the acquisition, and its
// first statement is [Guard]. Read the input of a write inside fn. InTx can be called several times
// while the lock is held, one after another: while fn runs, another call returns ErrNested
// immediately.
//
// The transaction is a *sql.Tx with additional rules. InTx sets a savepoint after Guard and
// verifies them with it at the end:
//
//   - After an error of the server or of the connection every statement returns ErrBroken, and
//     InTx rolls back with any result of fn: after a deadlock (1213) the transaction is gone, and
//     the next statement would commit on its own.
//   - Commit is refused. So are COMMIT, ROLLBACK (except to a savepoint), DDL, SET autocommit, SET
//     sql_mode, SET DEFAULT ROLE, PREPARE and several statements in one text. A commit inside a
//     procedure is detected at the end, after it has happened.
//   - Stmt refuses statements that were prepared on db: prepare them on the transaction.
//
// InTx does not retry after a deadlock: call InTx again while the lock is held. The transaction
// ends with ctx, and with the lease. fn may leave the connection idle for at most TTL, rounded up
// to seconds. Then the server ends the transaction, since a frozen holder would keep others out.
// The settings of the session are restored afterwards, or the connection is closed: it is closed
// after fn has used SET, CALL, DO, a temporary table, a user variable or GET_LOCK.
//
// The error is the error of fn, or wraps ErrLost, ErrReleased, ErrNoMint, ErrNested, ErrBroken or
// ErrCommit, and the cause of ctx, if it has ended. InTx costs seven round trips in addition to the
// ones that fn makes.
func (h *Held) InTx(ctx context.Context, db Pool, fn func(tx *sql.Tx) error) error {
	return locks{h}.inTx(ctx, db, fn)
}

// inTx implements InTx, guarded by each of the locks. It records the outcome.
func (all locks) inTx(ctx context.Context, db Pool, fn func(tx *sql.Tx) error) error {
	if err := all.enter(); err != nil {
		return err
	}
	defer all.exit()
	all.record(noCommit) // also for a panic of fn
	err := all.run(ctx, db, fn)
	switch {
	case err == nil:
		all.record(committed)
	case errors.Is(err, ErrCommit):
		all.record(unknown)
	case errors.Is(err, ErrLost):
		all.record(refused)
	}
	return err
}

// enter refuses a section while another one of the same lock is open. The row lock of a nested one
// would wait for the outer one.
func (all locks) enter() error {
	for i, h := range all {
		if !h.inside.CompareAndSwap(false, true) {
			all[:i].exit()
			return fmt.Errorf("guard %q: %w: call it after the other one has returned, or use the transaction of that", h.claim.Name, ErrNested)
		}
	}
	return nil
}

func (all locks) exit() {
	for _, h := range all {
		h.inside.Store(false)
	}
}

// run implements inTx without a record of its outcome.
func (all locks) run(ctx context.Context, db Pool, fn func(tx *sql.Tx) error) error {
	if err := all.ready(); err != nil {
		return err
	}
	callers := ctx
	ctx, cancel := all.during(ctx)
	defer cancel(nil)
	conn, err := db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("guard %s: %w", all, err)
	}
	defer conn.Close() // or Raw has closed it
	clean := false
	lent := conn.Raw(func(c any) error {
		clean, err = all.section(ctx, c, fn)
		if !clean {
			return driver.ErrBadConn // which the pool does not keep
		}
		return nil
	})
	if err == nil && lent != nil && clean {
		return fmt.Errorf("guard %s: %w", all, lent)
	}
	if errors.Is(err, ErrCommit) { // a loss does not mean that nothing was kept
		return err
	}
	if lost := all.lost(); err != nil && lost != nil && !errors.Is(err, ErrLost) {
		return fmt.Errorf("guard: %w: %w", lost, err) // err lacks the cause of ctx
	}
	if why := context.Cause(callers); err != nil && why != nil && !errors.Is(err, why) {
		// err may be driver.ErrBadConn
		return fmt.Errorf("guard %s: %w: %w", all, why, err)
	}
	return err
}

// Contract: changes only the session. The server ends a session whose client sends nothing for that
// long. Without autocommit, no statement that follows a rollback by the server commits on its own.
const (
	enterSQL = `SET @unstale_autocommit = @@SESSION.autocommit, @unstale_wait = @@SESSION.wait_timeout,
@unstale_read = @@SESSION.net_read_timeout, @unstale_write = @@SESSION.net_write_timeout,
autocommit = 0, wait_timeout = %[1]d, net_read_timeout = %[1]d, net_write_timeout = %[1]d`
	leaveSQL = `SET autocommit = @unstale_autocommit, wait_timeout = @unstale_wait,
net_read_timeout = @unstale_read, net_write_timeout = @unstale_write`
)

// section runs fn on a connection, and reports whether that is as it was before.
func (all locks) section(ctx context.Context, c any, fn func(tx *sql.Tx) error) (clean bool, err error) {
	s, err := newSession(c)
	if err != nil {
		return true, fmt.Errorf("guard %s: %w", all, err)
	}
	if err := s.exec(ctx, fmt.Sprintf(enterSQL, wholeSeconds(all[0].locker.config.TTL))); err != nil {
		return false, fmt.Errorf("guard %s: %w", all, err)
	}
	err = all.guarded(ctx, s, fn)
	if s.open.Load() || s.changed.Load() {
		// setting autocommit would commit it; only a new session has none of what fn has set
		return false, err
	}
	// a server that says nothing more
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), all[0].locker.config.TTL)
	defer cancel()
	return s.exec(limited, leaveSQL) == nil, err
}

// guarded runs the transaction of a section, in a pool of one connection.
func (all locks) guarded(ctx context.Context, s *session, fn func(tx *sql.Tx) error) error {
	db := sql.OpenDB(lender{s})
	defer func() {
		_ = db.Close()
		s.wait() // if ctx has ended, the rollback runs concurrently
	}()
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("guard %s: %w", all, err)
	}
	defer func() { _ = tx.Rollback() }() // no effect after Commit; also on a panic of fn
	own := context.WithValue(ctx, ownStatement{}, true)
	for _, h := range all {
		autocommit, mode, err := h.guard(own, tx)
		if err != nil {
			return err
		}
		s.mode = mode
		if autocommit {
			return fmt.Errorf("guard %s: the session commits each statement although it was told not to: connect directly, or let the proxy pass SET", all)
		}
	}
	savepoint := "unstale_" + locking.NewToken().String()
	if _, err := tx.ExecContext(own, "SAVEPOINT "+savepoint); err != nil {
		return fmt.Errorf("guard %s: %w", all, err)
	}
	if err := fn(tx); err != nil {
		return err
	}
	if err := s.failure(); err != nil {
		return all.broken(err)
	}
	if _, err := tx.ExecContext(own, "RELEASE SAVEPOINT "+savepoint); err != nil {
		if mysqlerr.Number(err) == 0 {
			return all.broken(fmt.Errorf("rows were not closed, or the connection is lost: %w", err))
		}
		if lost := all.check(); lost != nil {
			err = errors.Join(lost, err)
		}
		return fmt.Errorf("guard %s: %w: its savepoint is gone, so a statement of it, such as CALL, has committed or rolled back; "+
			"what it has committed stays, and all else is rolled back: %w", all, ErrBroken, err)
	}
	if err := all.check(); err != nil {
		return fmt.Errorf("guard: %w", err)
	}
	s.commits.Store(true)
	err = tx.Commit()
	if err != nil && s.committing.Load() {
		return fmt.Errorf("guard %s: %w: %w", all, ErrCommit, err)
	}
	return err // a context that ended before COMMIT was sent
}

// broken returns the error of InTx if fn did not return it.
func (all locks) broken(why error) error {
	if lost := all.check(); lost != nil {
		why = errors.Join(lost, why)
	}
	return fmt.Errorf("guard %s: %w", all, asBroken(why))
}

func asBroken(why error) error {
	if errors.Is(why, ErrBroken) {
		return why
	}
	return fmt.Errorf("%w, and is rolled back: %w", ErrBroken, why)
}
