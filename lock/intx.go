package lock

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/unstale/unstale/internal/dberr"
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
	err := all.runTx(ctx, db, fn)
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

// runTx implements inTx without a record of its outcome.
func (all locks) runTx(ctx context.Context, db Pool, fn func(tx *sql.Tx) error) error {
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

// locks are the locks of one Locker that a section relies on, in the order of their names.
type locks []*Held

func (all locks) names() (list []string) {
	for _, h := range all {
		list = append(list, h.claim.Name)
	}
	return list
}

// String returns the names for errors.
func (all locks) String() string {
	quoted := all.names()
	for i, name := range quoted {
		quoted[i] = strconv.Quote(name)
	}
	return strings.Join(quoted, ", ")
}

// during returns a context that ends with ctx and with any of the locks.
func (all locks) during(ctx context.Context) (context.Context, context.CancelCauseFunc) {
	both, cancel := context.WithCancelCause(ctx)
	stops := make([]func() bool, len(all))
	for i, h := range all {
		stops[i] = context.AfterFunc(h.ctx, func() { cancel(h.cause()) })
	}
	return both, func(why error) {
		for _, stop := range stops {
			stop()
		}
		cancel(why)
	}
}

// check returns the reason not to rely on the locks any longer: see Held.check.
func (all locks) check() error { return all.firstError((*Held).check) }

// ready returns the errors of a section that are known without asking a server.
func (all locks) ready() error { return all.firstError((*Held).ready) }

func (all locks) firstError(of func(*Held) error) error {
	for _, h := range all {
		if err := of(h); err != nil {
			return err
		}
	}
	return nil
}

// lost returns why one of them is lost, or nil.
func (all locks) lost() error {
	return all.firstError(func(h *Held) error {
		if why := h.cause(); errors.Is(why, ErrLost) {
			return why
		}
		return nil
	})
}

// leave stops extending them. They end with their leases, or with Release.
func (all locks) leave() {
	for _, h := range all {
		h.lease.left.Store(true)
	}
}

// release gives them back, the last one first.
func (all locks) release() error { return errors.Join(all.releaseEach()...) }

func (all locks) releaseEach() (errs []error) {
	for i := range all {
		errs = append(errs, all[len(all)-1-i].Release())
	}
	return errs
}

// finish releases them after a section. A release that is not confirmed is not a failure of the
// section: no other holder had the lock before its end. The Logger is told.
func (all locks) finish() error {
	errs := all.releaseEach()
	for i, err := range errs {
		if unconfirmed, ok := errors.AsType[*unconfirmedError](err); ok {
			errs[i] = nil
			config := all[0].locker.config
			config.Logger.Warn("a lock was not released; others wait until its lease ends", "lock", unconfirmed.name, "ttl", config.TTL, "error", unconfirmed.why)
		}
	}
	return errors.Join(errs...)
}

// The outcomes of the sections of a lock that decide what its loss means.
const (
	noCommit  int32 = iota // the last section, if any, was rolled back
	committed              // the last section was committed
	unknown                // the last COMMIT got no answer
	refused                // a section was refused because the lock was lost; nothing changes this
)

// record stores the outcome of a section in each lock.
func (all locks) record(outcome int32) {
	for _, h := range all {
		if h.outcome.Swap(outcome) == refused {
			h.outcome.Store(refused)
		}
	}
}

// afterCommit returns err without ErrLost, if err is a loss or the end of the Locker and the last
// section of each lock was committed, or may have been. The caller must not begin such a section
// again.
func (all locks) afterCommit(err error) error {
	if !errors.Is(err, ErrLost) && !errors.Is(err, ErrClosed) {
		return err
	}
	class := ErrLostAfterCommit
	for _, h := range all {
		switch h.outcome.Load() {
		case committed:
		case unknown:
			class = ErrCommit
		default:
			return err
		}
	}
	return lateLoss{err, class}
}

// A lateLoss is a loss that undoes nothing. It matches class instead of ErrLost, and all else that
// why wraps.
type lateLoss struct{ why, class error }

func (e lateLoss) Error() string {
	if errors.Is(e.class, ErrCommit) {
		return e.why.Error() + ", after a COMMIT whose outcome is unknown"
	}
	return e.why.Error() + ", after InTx had committed"
}

func (e lateLoss) Is(target error) bool {
	return target == e.class || target != ErrLost && errors.Is(e.why, target)
}

func (e lateLoss) As(target any) bool { return errors.As(e.why, target) }

// Tx is a transaction: *sql.Tx or *sqlx.Tx. A *sql.DB has no Commit method, so code that guards
// outside a transaction does not compile.
type Tx interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	Commit() error
	Rollback() error
}

// Contract: an exclusive lock on one row by primary key, until the end of the transaction; waits
// for a mint, or for another section of the same holder. The text contains the name in hexadecimal
// digits, which saves a round trip to prepare it.
const guardSQL = dberr.BannerSQL + `, LOWER(HEX(token)), @@SESSION.wait_timeout, @@SESSION.autocommit, @@SESSION.sql_mode FROM cache_outbox_locks
WHERE name = X'%x' FOR UPDATE`

// Guard guards a transaction that the caller begins and commits; in all other cases use
// [Held.InTx]. It returns ErrLost unless held is still the last holder of its lock. Then it
// prevents any other holder until tx ends. It asks MySQL only if the lease has not ended by the
// clock of this machine. Roll back after an error.
//
// The caller must
//
//   - begin tx after the acquisition and make Guard its first statement: with REPEATABLE READ, an
//     earlier snapshot shows older data, and an update that is computed from it loses another
//     update. MariaDB returns error 1020 instead, if innodb_snapshot_isolation is on, which is the
//     default of 11.8;
//   - read the input of a write inside tx, after Guard;
//   - roll back after any error: after a deadlock (1213) the transaction is gone, and the next
//     statement commits on its own;
//   - set savepoints after Guard: a rollback to a savepoint from before the first statement on a
//     table rolls back everything and unlocks the row, so another holder may come. Only a second
//     call of Guard would detect it;
//   - not use statements that commit implicitly.
//
// The wait_timeout of the session must be at most twice the TTL, rounded up to seconds: it is how
// long a holder that is frozen in tx keeps others out. Set it in the DSN, for example
// wait_timeout=10, and ConnMaxIdleTime of the pool below it.
func Guard(ctx context.Context, tx Tx, held *Held) error {
	_, _, err := held.guard(ctx, tx)
	return err
}

// guard also reports whether the MySQL session commits each statement, and its sql_mode.
func (h *Held) guard(ctx context.Context, tx Tx) (autocommit bool, mode string, err error) {
	if err := h.ready(); err != nil {
		return false, "", err
	}
	ctx, cancel := locks{h}.during(ctx)
	defer cancel(nil)
	var banner, text string
	var wait int64
	err = tx.QueryRowContext(ctx, fmt.Sprintf(guardSQL, h.claim.Name)).Scan(&banner, &text, &wait, &autocommit, &mode)
	limit := 2 * wholeSeconds(h.locker.config.TTL)
	switch n := mysqlerr.Number(err); {
	case dberr.IsVTGate(banner):
		err = fmt.Errorf("guard %q: %w", h.claim.Name, dberr.ErrVTGate)
	case errors.Is(err, sql.ErrNoRows):
		err = fmt.Errorf("guard %q: %w: MySQL has no token of it in this database; the pool must lead to the database that "+
			"lock.Config.MySQL names, unless the token was removed, or the database restored", h.claim.Name, ErrLost)
		h.end(err)
	case n == mysqlerr.NoTable:
		err = fmt.Errorf("guard %q: %w; run 'unstale migrate up', and guard transactions of the database that lock.Config.MySQL names", h.claim.Name, err)
	case n == mysqlerr.NoneSelected:
		err = fmt.Errorf("guard %q: %w; name in the DSN of the pool the database that lock.Config.MySQL names", h.claim.Name, err)
	case n == mysqlerr.NoRight:
		err = fmt.Errorf("guard %q: %w; GRANT SELECT, INSERT, UPDATE ON cache_outbox_locks to the account", h.claim.Name, err)
	case err != nil && h.ctx.Err() != nil:
		err = fmt.Errorf("guard: %w: %w", context.Cause(h.ctx), err)
	case err != nil:
		err = fmt.Errorf("guard %q: %w", h.claim.Name, err)
	case text != h.claim.Token.String():
		err = fmt.Errorf("guard %q: %w: MySQL has the token of a later holder, possibly with another Prefix or Root", h.claim.Name, ErrLost)
		h.end(err)
	case wait > limit:
		err = fmt.Errorf("guard %q: the session's wait_timeout is %d s: a holder that is frozen in its transaction would keep others out for so long; "+
			"set wait_timeout=%d in the DSN, and the pool's ConnMaxIdleTime below it", h.claim.Name, wait, wholeSeconds(h.locker.config.TTL))
	}
	return autocommit, mode, err
}

// ready returns the errors that are known without asking a server.
func (h *Held) ready() error {
	if h.locker.mint == nil {
		return fmt.Errorf("guard %q: %w", h.claim.Name, ErrNoMint)
	}
	if err := h.check(); err != nil {
		return fmt.Errorf("guard: %w", err)
	}
	return nil
}
