package lock

import (
	"context"
	"errors"
	"time"
)

// Do acquires the lock as Acquire does, runs fn and releases the lock, also if fn panics. The context of fn ends with ctx, and
// when the lock is lost. Whatever must not be lost belongs into held.InTx.
//
// Do waits for fn even where it ignores its context: the lock is not extended any more then, so that others may have it
// before fn ends, and after Config.Margin the Logger is told. The error is that of the acquisition, or fn's, joined with that
// of Release: it wraps ErrLost if the lock was lost, also where fn returned nil.
func (l *Locker) Do(ctx context.Context, name string, fn func(ctx context.Context, held *Held) error) (err error) {
	held, err := l.Acquire(ctx, name)
	if err != nil {
		return err
	}
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
				"lock", name, "error", context.Cause(section))
		}
	})
	defer func() {
		stop()
		close(over)
		cancel()
		err = errors.Join(err, held.Release())
	}()
	return fn(section, held)
}
