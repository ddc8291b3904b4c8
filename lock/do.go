package lock

import (
	"context"
	"errors"
	"strings"
	"time"
)

// Do acquires the lock like Acquire, runs fn and releases the lock, even if fn panics. The context
// of fn ends with ctx, and when the lock is lost. Writes that must not be lost belong into
// held.InTx.
//
// Do waits for fn even if fn ignores its context. The lock is then no longer extended, so another
// holder may get it before fn ends. After Config.Margin, Do logs this. The error is the error of
// the acquisition or of fn, joined with ErrLost if the lock was lost, even if fn returned nil. If
// the lock was lost after the last InTx had committed, the error wraps ErrLostAfterCommit instead,
// even if fn returns the cause of its context.
//
// If the backend does not confirm the release, Do returns the error of fn, or nil: no other holder
// had the lock meanwhile. The lock then ends with its lease. Do logs this, and Statistics count it
// as Unconfirmed.
func (l *Locker) Do(ctx context.Context, name string, fn func(ctx context.Context, held *Held) error) error {
	held, err := l.Acquire(ctx, name)
	if err != nil {
		return err
	}
	return l.do(ctx, locks{held}, func() {}, func(section context.Context) error { return fn(section, held) })
}

// DoAll is like Do, with the locks of all names, acquired like AcquireAll. The context of fn ends
// when any of them is lost.
func (l *Locker) DoAll(ctx context.Context, names []string, fn func(ctx context.Context, held *HeldAll) error) error {
	held, err := l.AcquireAll(ctx, names)
	if err != nil {
		return err
	}
	return l.do(ctx, held.locks, held.end, func(section context.Context) error { return fn(section, held) })
}

// do runs fn as Do has it, then end, and releases the locks.
func (l *Locker) do(ctx context.Context, held locks, end func(), fn func(section context.Context) error) (err error) {
	section, cancel := held.during(ctx)
	over := make(chan struct{})
	stop := context.AfterFunc(section, func() {
		held.leave()
		timer := time.NewTimer(l.config.Margin)
		defer timer.Stop()
		select {
		case <-over:
		case <-timer.C:
			l.counts.overruns.Add(1)
			l.config.Logger.Warn("a section continues after its context has ended: its lock is no longer extended, and others may have it",
				"lock", strings.Join(held.names(), ", "), "error", context.Cause(section))
		}
	})
	defer func() {
		stop()
		close(over)
		cancel(nil)
		end()
		if lost := held.finish(); lost != nil {
			err = held.afterCommit(errors.Join(err, lost))
		}
	}()
	return fn(section)
}
