package lock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

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
	if !l.add(h) {
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
		h.end(h.expired())
	}
	return h.cause()
}

func (h *Held) expired() error {
	return fmt.Errorf("lock %q: %w: its lease ended before it could be extended", h.claim.Name, ErrLost)
}
