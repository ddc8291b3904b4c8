package lock

import (
	"context"
	"errors"
	"strings"
	"time"
)

// Do acquires the lock as Acquire does, runs fn and releases the lock, also if fn panics. The context of fn ends with ctx, and
// when the lock is lost. Whatever must not be lost belongs into held.InTx.
//
// Do waits for fn even where it ignores its context: the lock is not extended any more then, so that others may have it
// before fn ends, and after Config.Margin the Logger is told. The error is that of the acquisition, or fn's, joined with that
// of Release: it wraps ErrLost if the lock was lost, also where fn returned nil. If the lock was lost after the last InTx had
// committed, it wraps ErrLostAfterCommit and not ErrLost, even if fn returns why its context ended.
func (l *Locker) Do(ctx context.Context, name string, fn func(ctx context.Context, held *Held) error) error {
	held, err := l.Acquire(ctx, name)
	if err != nil {
		return err
	}
	return l.do(ctx, locks{held}, held.Release, func(section context.Context) error { return fn(section, held) })
}

// DoAll is as Do, with the locks of all names, acquired as AcquireAll does. The context of fn ends when any of them is lost.
func (l *Locker) DoAll(ctx context.Context, names []string, fn func(ctx context.Context, held *HeldAll) error) error {
	held, err := l.AcquireAll(ctx, names)
	if err != nil {
		return err
	}
	return l.do(ctx, held.locks, held.Release, func(section context.Context) error { return fn(section, held) })
}

// do runs fn as Do has it, and then release.
func (l *Locker) do(ctx context.Context, held locks, release func() error, fn func(section context.Context) error) (err error) {
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
			l.config.Logger.Warn("a section goes on although its context has ended: its lock is not extended any more, and others may have it",
				"lock", strings.Join(held.names(), ", "), "error", context.Cause(section))
		}
	})
	defer func() {
		stop()
		close(over)
		cancel(nil)
		err = held.afterCommit(errors.Join(err, release()))
	}()
	return fn(section)
}
