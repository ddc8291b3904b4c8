package lock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/unstale/unstale/internal/mysqlerr"
)

// Tx is a transaction: *sql.Tx or *sqlx.Tx. A *sql.DB has no Commit, so that guarding outside of a transaction does not
// compile.
type Tx interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	Commit() error
	Rollback() error
}

// Contract: an exclusive lock on one row by primary key, till the end of the transaction; waits for a mint, or for another
// section of the same holder. The name stands in the text as hexadecimal digits, which spares a round trip to prepare it.
const guardSQL = `SELECT LOWER(HEX(token)), @@SESSION.wait_timeout, @@SESSION.autocommit, @@SESSION.sql_mode FROM cache_outbox_locks
WHERE name = X'%x' FOR UPDATE`

// Guard is the expert form of [Held.InTx], for a transaction of one's own: it refuses, with ErrLost, unless held is still
// the last holder of its lock, and then keeps any other from becoming it until tx ends. It asks MySQL only if the lease is
// not over by this machine's clock. After an error roll back.
//
// It is on the caller to
//   - begin tx after the acquisition and make Guard its first statement: an earlier snapshot of REPEATABLE READ shows what
//     was there before, and an update that is computed from it loses another's;
//   - read inside of tx, after Guard, what a write is computed from;
//   - roll back after any error, and commit nothing else: after a deadlock (1213) the transaction is gone, and the next
//     statement commits by itself;
//   - set savepoints after Guard: rolling back to one that came before the first statement on a table rolls back everything, and
//     unlocks the row, so that another may become the holder; only Guard, called again, would tell;
//   - not use statements that commit implicitly.
//
// The session's wait_timeout must be twice the TTL at most, rounded up to seconds: it is how long a holder that is frozen in tx
// keeps others out. Set it in the DSN, such as wait_timeout=10, and ConnMaxIdleTime of the pool below it.
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
	err = tx.QueryRowContext(ctx, fmt.Sprintf(guardSQL, h.claim.name)).Scan(&text, &wait, &autocommit, &mode)
	limit := 2 * wholeSeconds(h.locker.config.TTL)
	switch n := mysqlerr.Number(err); {
	case errors.Is(err, sql.ErrNoRows):
		err = fmt.Errorf("guard %q: %w: MySQL has no token of it; was it removed, or the database restored?", h.claim.name, ErrLost)
		h.end(err)
	case n == mysqlerr.NoTable:
		err = fmt.Errorf("guard %q: %w; run 'unstale migrate up', and guard transactions of the database that lock.Config.MySQL names", h.claim.name, err)
	case n == mysqlerr.NoRight:
		err = fmt.Errorf("guard %q: %w; GRANT SELECT, INSERT, UPDATE ON cache_outbox_locks to the account", h.claim.name, err)
	case err != nil && h.ctx.Err() != nil:
		err = fmt.Errorf("guard: %w: %w", context.Cause(h.ctx), err)
	case err != nil:
		err = fmt.Errorf("guard %q: %w", h.claim.name, err)
	case text != h.claim.token.String():
		err = fmt.Errorf("guard %q: %w: MySQL has the token of a later holder", h.claim.name, ErrLost)
		h.end(err)
	case wait > limit:
		err = fmt.Errorf("guard %q: the session's wait_timeout is %d s: a holder that is frozen in its transaction would keep others out for so long; "+
			"set wait_timeout=%d in the DSN, and the pool's ConnMaxIdleTime below it", h.claim.name, wait, wholeSeconds(h.locker.config.TTL))
	}
	return autocommit, mode, err
}

// ready refuses by what is known without asking anybody.
func (h *Held) ready() error {
	if h.locker.mint == nil {
		return fmt.Errorf("guard %q: %w", h.claim.name, ErrNoMint)
	}
	if err := h.check(); err != nil {
		return fmt.Errorf("guard: %w", err)
	}
	return nil
}
