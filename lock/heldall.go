package lock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
)

// HeldAll is several locks of one Locker, acquired by [Locker.AcquireAll] or [Locker.DoAll]. Safe for concurrent use.
type HeldAll struct {
	locks locks
	ctx   context.Context
	lose  context.CancelCauseFunc
}

// AcquireAll waits until it has the locks of all names, as Acquire does, one after another in the order of the names' bytes, so that
// callers with names in common never wait for each other in a circle. A name that is given twice counts once. Acquire nothing
// else while the locks are held.
//
// Those that are had are extended meanwhile. The error is that of the first lock that could not be acquired, or wraps ErrLost if one
// was lost while others were waited for; what was had is released then.
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
			if lost := had.check(); lost != nil && !errors.Is(err, ErrLost) { // which has ended the question for the next one
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

// Locks returns each of the locks, in the order of their names, in which [Guard] has to be called for them in a transaction of
// one's own.
func (a *HeldAll) Locks() []*Held { return slices.Clone(a.locks) }

// Context ends when any of the locks is lost or released, as that of a [Held].
func (a *HeldAll) Context() context.Context { return a.ctx }

// InTx is as [Held.InTx], guarded by all locks: it is refused if any of them is lost. Each lock after the first takes one round trip more.
func (a *HeldAll) InTx(ctx context.Context, db Pool, fn func(tx *sql.Tx) error) error {
	return a.locks.inTx(ctx, db, fn)
}

// Release gives all locks back, the last one first, as that of a [Held] does. It takes Config.Timeout for each at most, and may be
// called again. The errors are joined.
func (a *HeldAll) Release() error {
	why := a.locks.check()
	if why == nil {
		why = fmt.Errorf("locks %s: %w", a.locks, ErrReleased)
	}
	a.lose(why)
	return a.locks.release()
}
