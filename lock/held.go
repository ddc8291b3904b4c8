package lock

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/unstale/unstale/lock/internal/locking"
)

// Held is a lock that its Locker extends until Release, or until it is lost. Safe for concurrent
// use.
type Held struct {
	locker *Locker
	claim  locking.Claim
	ctx    context.Context
	lose   context.CancelCauseFunc
	lease  lease

	mu       sync.Mutex    // of Release
	released bool          // the outcome is known
	result   error         // of Release
	over     chan struct{} // closed by Release, and by the goroutine that finds it lost
	once     sync.Once
	use      use
	outcome  atomic.Int32 // of the last section in InTx
	inside   atomic.Bool  // a section in InTx is open
}

// hold begins to keep a lock.
func (l *Locker) hold(ctx context.Context, c locking.Claim) (*Held, error) {
	h := &Held{locker: l, claim: c, over: make(chan struct{})}
	h.lease.until.Store(int64(c.Asked + l.config.TTL - l.config.Margin))
	h.ctx, h.lose = context.WithCancelCause(context.WithoutCancel(ctx))
	if !l.register(h) {
		l.drop(c)
		return nil, ErrClosed
	}
	return h, nil
}

// Name returns the name of the lock.
func (h *Held) Name() string { return h.claim.Name }

// Context returns a context that ends when the lock is lost or released: at the latest Margin
// before another holder can get it, if the backend keeps its data. context.Cause returns the
// reason, with ErrLost or ErrReleased. It has the values of the context of the acquisition, and
// does not end with it. After a suspend of the machine it ends within a quarter of a second.
func (h *Held) Context() context.Context { return h.ctx }

// Release releases the lock, and wakes a waiter. It takes at most Config.Timeout. The error wraps
//
//   - ErrLost, if the lock was lost before, or has vanished unnoticed;
//   - ErrLostAfterCommit instead, if the last InTx had committed;
//   - ErrCommit instead, if it is unknown whether the last InTx has committed;
//   - or the error of the backend, if that has not confirmed the release. The lock was not lost
//     before. Others wait until the lease ends, for at most TTL.
//
// If the backend has not confirmed the release, another call asks it again, and returns nil when
// the lock is gone. Otherwise it returns the first outcome.
func (h *Held) Release() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.released {
		return h.result
	}
	again := h.result != nil
	var lost error
	if !again {
		lost = h.check()
		h.end(releasedError(h.claim.Name))
	}
	ctx, cancel := context.WithTimeout(context.Background(), h.locker.config.Timeout)
	defer cancel()
	was, err := h.locker.service.Release(ctx, h.claim)
	h.released, h.result = lost != nil || err == nil, nil
	switch {
	case lost != nil:
		h.result = fmt.Errorf("release: %w", lost)
	case err != nil:
		h.result = &unconfirmedError{h.claim.Name, err}
		if !again {
			h.locker.counts.unconfirmed(h)
		}
	case !was && !again: // an earlier call may have released it
		h.locker.counts.vanished(h)
		h.result = fmt.Errorf("release lock %q: %w: it had vanished, or an earlier copy of this request has released it", h.claim.Name, ErrLost)
	}
	h.result = locks{h}.afterCommit(h.result)
	return h.result
}

// end ends the context, for a reason that wraps ErrLost, ErrReleased or ErrClosed. The first reason
// counts.
func (h *Held) end(why error) {
	h.lose(why)
	h.once.Do(func() {
		close(h.over)
		h.locker.counts.ended(h)
		if kept := h.locker.remove(h); !kept && errors.Is(why, ErrLost) {
			h.locker.launch(h.lapse)
		}
	})
}

// cause returns the reason why the context has ended.
func (h *Held) cause() error { return context.Cause(h.ctx) }

// check returns the reason not to rely on the lock any longer. It reads the clock, since the timer
// that ends the context may not have run yet if the process was frozen.
func (h *Held) check() error {
	if h.ctx.Err() == nil && locking.Now() >= h.deadline() {
		h.end(fmt.Errorf("lock %q: %w: its lease ended before it could be extended", h.claim.Name, ErrLost))
	}
	return h.cause()
}

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
	a.lose(cmp.Or(a.locks.check(), fmt.Errorf("locks %s: %w", a.locks, ErrReleased)))
}

// glance is how often a keeper reads the clock: timers pause while the machine is suspended.
const glance = 250 * time.Millisecond

// A lease is the deadline of a lock, and whether it is extended until then.
type lease struct {
	until atomic.Int64 // by locking.Now()
	left  atomic.Bool  // to itself
}

func (h *Held) deadline() time.Duration { return time.Duration(h.lease.until.Load()) }

// An extension is the outcome of a request to extend.
type extension struct {
	sent time.Duration
	was  bool // this holder's
	err  error
}

// keep extends the lock until it is released or lost, and ends its context at the deadline even if
// the backend hangs: requests run in other goroutines.
func (h *Held) keep() {
	config := h.locker.config
	period, again := config.TTL/3, max(config.TTL/10, config.Timeout)
	next := h.deadline() + config.Margin - config.TTL + period
	results := make(chan extension, 1)
	defer h.lapse()
	for {
		wait := min(glance, h.deadline()-locking.Now())
		if !h.lease.left.Load() {
			wait = min(wait, next-locking.Now())
		}
		select {
		case <-h.over:
			return
		case r := <-results:
			switch {
			case r.err == nil && !r.was:
				h.end(fmt.Errorf("lock %q: %w: it has vanished from the backend, or is another's", h.claim.Name, ErrLost))
			case r.err == nil:
				h.lease.until.Store(int64(max(h.deadline(), r.sent+config.TTL-config.Margin)))
				next = r.sent + period
			}
		case <-time.After(max(wait, 0)):
		}
		if h.check() != nil {
			return
		}
		if !h.lease.left.Load() && locking.Now() >= next {
			next = locking.Now() + again
			h.extend(results)
		}
	}
}

// extend sends a request. Its result is dropped if the lock has ended meanwhile.
func (h *Held) extend(results chan<- extension) {
	h.locker.launch(func() {
		sent := locking.Now()
		ctx, cancel := context.WithTimeout(context.Background(), h.locker.config.Timeout)
		defer cancel()
		was, err := h.locker.service.Extend(ctx, h.claim)
		select {
		case results <- extension{sent, was, err}:
		case <-h.over:
		}
	})
}

// lapse releases a lock at the backend that was lost and not released, when others may have it.
func (h *Held) lapse() {
	if !errors.Is(context.Cause(h.ctx), ErrLost) {
		return
	}
	select {
	case <-time.After(h.locker.config.Margin):
		h.locker.service.Lapsed(h.claim)
	case <-h.locker.life.Done():
	}
}

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
		select {
		case <-over:
		case <-time.After(l.config.Margin):
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
