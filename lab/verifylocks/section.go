package verifylocks

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/unstale/unstale/lock"
)

// computing is the mean time that a bare section computes between its read and its write. One of
// longBare bare sections takes up to half of a TTL instead. So does one of longGuarded guarded
// ones, which do not compute otherwise.
const (
	computing   = 10 * time.Millisecond
	longBare    = 4
	longGuarded = 500
)

// errUnknown reports that the UPDATE of a bare section got no reply.
var errUnknown = errors.New("it is unknown whether it was written")

// A worker is one goroutine of a holder, which does one section after another.
type worker struct {
	*holder
	lane int
	hot  bool
	dice *rand.Rand
}

// work runs sections until ctx ends.
func (w *worker) work(ctx context.Context) {
	for ctx.Err() == nil {
		kept, err := w.do(ctx, counter(w.Turn, w.lane, w.number()))
		switch {
		case kept:
			w.count(w.lane, tally{Done: 1})
		case errors.Is(err, lock.ErrCommit), errors.Is(err, errUnknown):
			w.count(w.lane, tally{Unknown: 1})
		case errors.Is(err, lock.ErrLost):
			w.count(w.lane, tally{Refused: 1})
		case ctx.Err() == nil:
			w.count(w.lane, tally{Failed: 1, Error: err.Error()})
			sleep(ctx, afterFail)
		}
	}
}

// number draws a lock. With a plant there are only a few, so that holders meet at them.
func (w *worker) number() int {
	switch {
	case w.hot:
		return 0
	case w.Plant != "":
		return 1 + w.dice.IntN(4)
	}
	return 1 + w.dice.IntN(lanes[w.lane].numbers(len(w.Backends)))
}

// do runs one section, and reports whether it was committed.
func (w *worker) do(ctx context.Context, id int) (kept bool, err error) {
	if lanes[w.lane].guarded {
		switch w.Plant {
		case oldSnapshot:
			return w.fromOldSnapshot(ctx, id)
		case lateWrite:
			return w.writeLate(ctx, id)
		}
	}
	err = w.locks[w.lane].Do(ctx, lockName(id), func(ctx context.Context, held *lock.Held) error {
		err := w.section(ctx, held, id)
		kept = err == nil
		return err
	})
	if lanes[w.lane].guarded && w.Plant == "" && errors.Is(err, lock.ErrLost) {
		kept = false // callers begin again after this error, so the ledger must not have it
	}
	return kept, err
}

func (w *worker) section(ctx context.Context, held *lock.Held, id int) error {
	switch {
	case !lanes[w.lane].guarded:
		return w.bare(ctx, id)
	case w.Plant == noGuard:
		return w.inOrdinaryTx(ctx, id)
	}
	return held.InTx(ctx, w.db, func(tx *sql.Tx) error {
		n, err := read(ctx, tx, id)
		if err != nil {
			return err
		}
		if w.dice.IntN(longGuarded) == 0 {
			sleep(ctx, rand.N(w.TTL/2))
		}
		return w.write(ctx, tx, id, n+1)
	})
}

// compute takes its time.
func (w *worker) compute(ctx context.Context) {
	if w.dice.IntN(longBare) == 0 {
		sleep(ctx, rand.N(w.TTL/2))
		return
	}
	sleep(ctx, computing/2+rand.N(computing))
}

// bare relies on the lease, which ends ctx. Each statement commits separately.
func (w *worker) bare(ctx context.Context, id int) error {
	n, err := read(ctx, w.db, id)
	if err != nil {
		return w.why(ctx, err)
	}
	w.compute(ctx)
	if ctx.Err() != nil { // this process knows that the lease has ended
		return context.Cause(ctx)
	}
	if err := w.write(ctx, w.db, id, n+1); err != nil {
		return fmt.Errorf("%w: %w", errUnknown, err)
	}
	return nil
}

// why returns the cause of the end of ctx, or err.
func (w *worker) why(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

func commit(tx *sql.Tx) error {
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("%w: %w", errUnknown, err)
	}
	return nil
}

// A querier is a transaction or a pool.
type querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

func read(ctx context.Context, from querier, id int) (n int64, err error) {
	err = from.QueryRowContext(ctx, "SELECT n FROM counters WHERE id = ?", id).Scan(&n)
	return n, err
}

// write writes what was computed. A trigger notes it in the ledger.
func (w *worker) write(ctx context.Context, to querier, id int, n int64) error {
	_, err := to.ExecContext(ctx, "UPDATE counters SET n = ?, process = ? WHERE id = ?", n, w.Process, id)
	return err
}

// inOrdinaryTx runs a section without Guard.
func (w *worker) inOrdinaryTx(ctx context.Context, id int) error {
	tx, err := w.db.BeginTx(ctx, nil)
	if err != nil {
		return w.why(ctx, err)
	}
	defer func() { _ = tx.Rollback() }()
	n, err := read(ctx, tx, id)
	if err != nil {
		return w.why(ctx, err)
	}
	w.compute(ctx)
	if err := w.write(ctx, tx, id, n+1); err != nil {
		return w.why(ctx, err)
	}
	return commit(tx)
}

// writeLate writes the result of a section after the section has ended.
func (w *worker) writeLate(ctx context.Context, id int) (kept bool, err error) {
	var n int64
	err = w.locks[w.lane].Do(ctx, lockName(id), func(ctx context.Context, held *lock.Held) error {
		return held.InTx(ctx, w.db, func(tx *sql.Tx) (err error) { n, err = read(ctx, tx, id); return err })
	})
	if err != nil {
		return false, err
	}
	if err := w.write(ctx, w.db, id, n+1); err != nil {
		return false, fmt.Errorf("%w: %w", errUnknown, err)
	}
	return true, nil
}

// fromOldSnapshot reads in a transaction that has begun before the acquisition.
func (w *worker) fromOldSnapshot(ctx context.Context, id int) (kept bool, err error) {
	tx, err := w.db.BeginTx(ctx, nil)
	if err != nil {
		return false, err
	}
	defer func() { _ = tx.Rollback() }()
	n, err := read(ctx, tx, id)
	if err != nil {
		return false, err
	}
	if _, err := tx.ExecContext(ctx, "SET wait_timeout = 2"); err != nil {
		return false, err
	}
	err = w.locks[w.lane].Do(ctx, lockName(id), func(ctx context.Context, held *lock.Held) error {
		if err := lock.Guard(ctx, tx, held); err != nil {
			return err
		}
		if err := w.write(ctx, tx, id, n+1); err != nil {
			return err
		}
		err := commit(tx)
		kept = err == nil
		return err
	})
	return kept, err
}
