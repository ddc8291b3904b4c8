package lock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/unstale/unstale/internal/mysqlerr"
)

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
const guardSQL = `SELECT LOWER(HEX(token)), @@SESSION.wait_timeout, @@SESSION.autocommit, @@SESSION.sql_mode FROM cache_outbox_locks
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
	var text string
	var wait int64
	err = tx.QueryRowContext(ctx, fmt.Sprintf(guardSQL, h.claim.Name)).Scan(&text, &wait, &autocommit, &mode)
	limit := 2 * wholeSeconds(h.locker.config.TTL)
	switch n := mysqlerr.Number(err); {
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
