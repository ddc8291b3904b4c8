package lock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
)

// HeldAll is several locks of one Locker, acquired by [Locker.AcquireAll] or [Locker.DoAll]. Safe
// for concurrent use.
type HeldAll struct {
	locks locks
	ctx   context.Context
	lose  context.CancelCauseFunc
}

// AcquireAll waits until it has the locks of all names, like Acquire, one by one in byte order of
// the names. Callers with common names therefore cannot deadlock. A repeated name counts once. Do
// not acquire other locks while these are held.
//
// It extends the acquired locks meanwhile. The error comes from the first lock that it could not
// acquire, or wraps ErrLost if one was lost during the wait for others. It then releases all of
// them.
func (l *Locker) AcquireAll(ctx context.Context, names []string) (*HeldAll, error) {
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	if len(names) == 0 {
		return nil, errors.New("acquire: no name of a lock is given")
	}
	for _, name := range names {
		if err := checkName(name); err != nil {
			return nil, fmt.Errorf("acquire: %w", err)
		}
	}
	var had locks
	for _, name := range names {
		waiting, done := had.during(ctx)
		held, err := l.Acquire(waiting, name)
		done(nil)
		if err == nil {
			had = append(had, held)
			err = had.check()
		}
		if err != nil {
			// which has ended the question for the next one
			if lost := had.check(); lost != nil && !errors.Is(err, ErrLost) {
				err = fmt.Errorf("acquire: %w: %w", lost, err)
			}
			_ = had.release() // err says more
			return nil, err
		}
	}
	all := &HeldAll{locks: had}
	all.ctx, all.lose = had.during(context.WithoutCancel(ctx))
	return all, nil
}

// Locks returns the locks in the order of their names. In a transaction of the caller, call [Guard]
// for them in this order.
func (a *HeldAll) Locks() []*Held { return slices.Clone(a.locks) }

// Context returns a context that ends when any of the locks is lost or released, like that of a
// [Held].
func (a *HeldAll) Context() context.Context { return a.ctx }

// InTx is like [Held.InTx], guarded by all locks: it is refused if any of them is lost. Each lock
// after the first costs one more round trip.
func (a *HeldAll) InTx(ctx context.Context, db Pool, fn func(tx *sql.Tx) error) error {
	return a.locks.inTx(ctx, db, fn)
}

// Release releases all locks, the last one first, like that of a [Held]. It takes at most
// Config.Timeout for each. The errors are joined.
func (a *HeldAll) Release() error {
	a.end()
	return a.locks.release()
}

// end ends the context.
func (a *HeldAll) end() {
	why := a.locks.check()
	if why == nil {
		why = fmt.Errorf("locks %s: %w", a.locks, ErrReleased)
	}
	a.lose(why)
}
