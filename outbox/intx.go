package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/unstale/unstale/internal/dberr"
	"github.com/unstale/unstale/internal/mysqlerr"
	"github.com/unstale/unstale/internal/sleep"
)

// Beginner starts transactions: *sql.DB, *sql.Conn and *sqlx.DB do.
type Beginner interface {
	BeginTx(ctx context.Context, opts *sql.TxOptions) (*sql.Tx, error)
}

// InTx retries a deadlocked transaction this often, with increasing waits.
const (
	inTxTries   = 5
	inTxBackoff = 5 * time.Millisecond
)

// ErrCommit is wrapped by the error that [InTx] returns if COMMIT itself failed: the transaction
// may have been committed.
var ErrCommit = dberr.ErrCommit

// InTx runs fn in a transaction and commits it. If fn returns an error or panics, InTx rolls back.
//
// If fn returns a deadlock error (1213), a lock wait timeout (1205) or, from MariaDB 11.8, a changed
// record (1020), possibly wrapped, InTx rolls back and calls fn again, at most five times in total.
// fn must therefore have no effects outside tx. InTx also calls fn again if COMMIT fails because
// another node of a cluster changed a row first: 1213 with Galera, 3101 and 1180 for a deadlock with
// Group Replication. Any other error of COMMIT wraps [ErrCommit], and InTx does not retry. The
// isolation level is the default of the MySQL session. InTx is safe for concurrent use.
func InTx(ctx context.Context, db Beginner, fn func(tx *sql.Tx) error) error {
	for try := 1; ; try++ {
		committing, err := inTx(ctx, db, fn)
		if err == nil || committing || try == inTxTries || !mysqlerr.IsContention(err) {
			return err
		}
		wait := time.Duration(try) * inTxBackoff
		if ended := sleep.For(ctx, wait+rand.N(wait)); ended != nil {
			return errors.Join(err, ended)
		}
	}
}

// inTx makes one attempt and reports whether it got as far as COMMIT.
func inTx(ctx context.Context, db Beginner, fn func(tx *sql.Tx) error) (committing bool, err error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return false, fmt.Errorf("begin transaction: %w", err)
	}
	defer func() { _ = tx.Rollback() }() // no effect after Commit; also on a panic of fn
	if err := fn(tx); err != nil {
		return false, err
	}
	switch err := tx.Commit(); {
	case mysqlerr.IsRollback(err):
		return false, fmt.Errorf("commit transaction, which is rolled back: %w", err)
	case err != nil:
		return true, fmt.Errorf("%w: %w", ErrCommit, err)
	}
	return true, nil
}
