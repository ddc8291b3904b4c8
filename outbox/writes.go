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

// QueryTx is a transaction that can also run queries, such as *sql.Tx or *sqlx.Tx. For GORM and
// ent, see docs/adopting.md.
type QueryTx interface {
	Tx
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// Writes collects the rows of one transaction for a Token. [InTxToken] creates one for you. The
// zero value is ready for use. Use one per transaction, and not concurrently.
type Writes struct {
	token Token
	begun time.Time // when the token's time was read
	step  uint64
}

// Contract: the single row of cache_outbox_source, by a scan, since the table has no other. It
// reads under a shared lock, which delays no session because the row is never written. A plain read
// would give the transaction its snapshot, and later reads of the application would be as old. The
// clock and the increment come from the session.
const tokenSQL = "SELECT s.id, UNIX_TIMESTAMP(), @@SESSION.auto_increment_increment FROM cache_outbox_source AS s LOCK IN SHARE MODE"

// Enqueue is like the function [Enqueue], and also collects the rows. The first call runs one more
// query, which reads the ID of the outbox; it fails if tx leads to several shards, each with an
// outbox of its own. Rows with NotBefore are not part of the token.
func (w *Writes) Enqueue(ctx context.Context, tx QueryTx, invalidations ...Invalidation) error {
	now, later, err := encodeAll(ctx, invalidations)
	if err != nil {
		return err
	}
	if len(now) > 0 {
		if err := w.readParts(ctx, tx); err != nil {
			return fmt.Errorf("insert invalidations: %w", err)
		}
	}
	if err := insert(ctx, tx, insertSQL, "(?,?,?,?)", now, w.inserted); err != nil {
		return err
	}
	return insert(ctx, tx, insertDelayedSQL, "(?,?,?,?,?)", later, nil)
}

// Committed returns the token of all collected rows. Call it after COMMIT, unless the transaction
// was rolled back: rows that do not exist count as settled. TokenLifetime starts with this call.
func (w *Writes) Committed() Token {
	token := w.token
	if !token.IsZero() {
		token.made += int64(time.Since(w.begun) / time.Second)
	}
	return token
}

// readParts reads the parts of the token other than its rows.
func (w *Writes) readParts(ctx context.Context, tx QueryTx) error {
	if !w.token.IsZero() {
		return nil
	}
	w.begun = time.Now()
	rows, err := tx.QueryContext(ctx, tokenSQL)
	if err != nil {
		return fmt.Errorf("read the outbox's id (unstale migrate up makes it; the account needs SELECT on cache_outbox_source): %w", err)
	}
	defer func() { _ = rows.Close() }() // rows.Err reports what went wrong
	if !rows.Next() {
		return errors.Join(errors.New("cache_outbox_source has no row; run unstale migrate up"), rows.Err())
	}
	if err := rows.Scan(&w.token.source, &w.token.made, &w.step); err != nil {
		return fmt.Errorf("read the outbox's id: %w", err)
	}
	n := 1
	for rows.Next() {
		n++
	}
	if n > 1 {
		w.token = Token{}
		return severalOutboxes(n)
	}
	return errors.Join(rows.Err(), rows.Close())
}

// inserted records the rows of one statement. The server gives such a statement consecutive IDs,
// with the distance auto_increment_increment, and returns the first one:
// https://dev.mysql.com/doc/refman/9.0/en/innodb-auto-increment-handling.html
func (w *Writes) inserted(result sql.Result, count int) error {
	first, err := result.LastInsertId()
	if err != nil {
		return err
	}
	if first <= 0 {
		return errors.New("the driver tells no id of the rows")
	}
	w.token.addRuns(run{first: uint64(first), count: uint64(count), step: w.step})
	return nil
}

// InTxToken is like [InTx], and also returns the token of the rows that fn enqueued through writes.
// If the error wraps [ErrCommit], InTxToken returns the token too, because the rows may exist. If
// fn enqueued nothing, the token is zero.
func InTxToken(ctx context.Context, db Beginner, fn func(tx *sql.Tx, writes *Writes) error) (Token, error) {
	var writes *Writes
	err := InTx(ctx, db, func(tx *sql.Tx) error {
		writes = &Writes{} // of this attempt
		return fn(tx, writes)
	})
	if writes == nil || err != nil && !errors.Is(err, ErrCommit) {
		return Token{}, err
	}
	return writes.Committed(), err
}

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

// A Pool is a pool of database connections, such as *sql.DB or *sqlx.DB.
type Pool interface {
	Conn(ctx context.Context) (*sql.Conn, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}
