package lock

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"

	"github.com/unstale/unstale/internal/mysqlerr"
)

// A Pool gives connections: *sql.DB and *sqlx.DB do. It must lead to the database that Config.MySQL names.
type Pool interface {
	Conn(ctx context.Context) (*sql.Conn, error)
}

// InTx runs fn in a transaction that no other holder's can interleave with, and commits it; an error or a panic of fn rolls
// back. The transaction begins now, after the acquisition, and its first statement is [Guard]. Read inside what a write is
// computed from. It may be called several times while the lock is held, one after another: while fn runs, another call returns
// ErrNested immediately.
//
// The transaction is a *sql.Tx with rules of its own, which the savepoint that it sets after Guard proves at the end:
//   - after an error of the server or of the connection every statement is refused, with ErrBroken, and InTx rolls back
//     whatever fn returns: after a deadlock (1213) the transaction is gone, and the next statement would commit by itself;
//   - Commit is refused, and so are COMMIT, ROLLBACK but for one to a savepoint, DDL, SET autocommit, SET sql_mode, SET DEFAULT
//     ROLE, PREPARE and several statements in one text. What a procedure commits is found out at the end, when it has happened.
//   - Stmt refuses statements that were prepared on db: prepare them on the transaction.
//
// A deadlock is not tried again: while the lock is held, call InTx again. The transaction ends with ctx, and with the lease. fn
// may leave the connection idle for no longer than TTL, rounded up to seconds: after that the server ends it, since a holder
// that is frozen would keep others out. The session's settings are as before afterwards, or the connection is not pooled: it is closed
// after fn has used SET, CALL, DO, a temporary table, a user variable or GET_LOCK.
//
// The error is fn's, or wraps ErrLost, ErrReleased, ErrNoMint, ErrNested, ErrBroken or ErrCommit, and why ctx has ended, if it has. It takes
// seven round trips beside what fn does.
func (h *Held) InTx(ctx context.Context, db Pool, fn func(tx *sql.Tx) error) error {
	return locks{h}.inTx(ctx, db, fn)
}

// inTx is InTx, guarded by each of the locks. It records the outcome.
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

// enter refuses a section while another one of the same lock is open. The row lock of a nested one would wait for the outer one.
func (all locks) enter() error {
	for i, h := range all {
		if !h.inside.CompareAndSwap(false, true) {
			all[:i].exit()
			return fmt.Errorf("guard %q: %w: call it after the other one has returned, or use the transaction of that", h.claim.name, ErrNested)
		}
	}
	return nil
}

func (all locks) exit() {
	for _, h := range all {
		h.inside.Store(false)
	}
}

// run is inTx, without a record of its outcome.
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
		return fmt.Errorf("guard: %w: %w", lost, err) // err says that a context ended, and not why
	}
	if why := context.Cause(callers); err != nil && why != nil && !errors.Is(err, why) {
		return fmt.Errorf("guard %s: %w: %w", all, why, err) // err may say that the connection is bad
	}
	return err
}

// Contract: of the session only. The server ends a session whose client is silent for that long. Without autocommit nothing
// that follows a rollback by the server commits by itself.
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
		return false, err // setting autocommit would commit it; only a new session has none of what fn has set
	}
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), all[0].locker.config.TTL) // a server that says nothing more
	defer cancel()
	return s.exec(limited, leaveSQL) == nil, err
}

// guarded is the transaction of a section, in a pool of one connection.
func (all locks) guarded(ctx context.Context, s *session, fn func(tx *sql.Tx) error) error {
	db := sql.OpenDB(lender{s})
	defer func() {
		_ = db.Close()
		s.wait() // where ctx has ended, the rollback runs beside this
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
	savepoint := "unstale_" + newToken().String()
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
		return all.broken(fmt.Errorf("its savepoint is gone, so it was rolled back or committed before its end: %w", err))
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

// broken is what InTx returns where fn has not told of it.
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
