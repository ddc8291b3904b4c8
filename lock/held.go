package lock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
)

// Held is a lock that its Locker extends until Release, or until it is lost. Safe for concurrent use.
type Held struct {
	locker *Locker
	claim  claim
	ctx    context.Context
	lose   context.CancelCauseFunc
	lease  lease

	mu       sync.Mutex // of Release
	released bool
	result   error         // of Release
	over     chan struct{} // closed by Release, and by whoever finds it lost
	once     sync.Once
	use      use
	outcome  atomic.Int32 // of the last section in InTx
	inside   atomic.Bool  // a section in InTx is open
}

// hold begins to keep a lock.
func (l *Locker) hold(ctx context.Context, c claim) (*Held, error) {
	h := &Held{locker: l, claim: c, over: make(chan struct{})}
	h.lease.until.Store(int64(c.asked + l.config.TTL - l.config.Margin))
	h.ctx, h.lose = context.WithCancelCause(context.WithoutCancel(ctx))
	if !l.add(h) {
		l.drop(c)
		return nil, ErrClosed
	}
	return h, nil
}

// Name is that of the lock.
func (h *Held) Name() string { return h.claim.name }

// Context ends when the lock is lost or released: at the latest Margin before another can have it, if the backend keeps
// what it was told. context.Cause says why, with ErrLost or ErrReleased. It has the values of the context of the acquisition,
// and does not end with it. On a machine that was suspended it ends within a quarter of a second after the machine goes on.
func (h *Held) Context() context.Context { return h.ctx }

// Release gives the lock back, and wakes a waiter. It takes Config.Timeout at most, and may be called again. An error wraps
//   - ErrLost, if the lock was lost before, or has vanished without a notice;
//   - ErrLostAfterCommit instead, if the last InTx had committed;
//   - ErrCommit instead, if nothing tells whether the last InTx was committed;
//   - or the error of the backend. The lease then ends by itself.
func (h *Held) Release() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.released {
		return h.result
	}
	h.released = true
	lost := h.check()
	h.end(releasedError(h.claim.name))
	ctx, cancel := context.WithTimeout(context.Background(), h.locker.config.Timeout)
	defer cancel()
	was, err := h.locker.service.release(ctx, h.claim)
	switch {
	case lost != nil:
		h.result = fmt.Errorf("release: %w", lost)
	case err != nil:
		h.result = fmt.Errorf("release lock %q: %w", h.claim.name, err)
	case !was:
		h.locker.counts.vanished(h)
		h.result = fmt.Errorf("release lock %q: %w: it had vanished, or an earlier copy of this request has released it", h.claim.name, ErrLost)
	}
	h.result = locks{h}.afterCommit(h.result)
	return h.result
}

// end ends the context, for a reason that wraps ErrLost, ErrReleased or ErrClosed. The first reason counts.
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

// cause is the reason for which the context has ended.
func (h *Held) cause() error { return context.Cause(h.ctx) }

// check returns why the lock must not be relied on any more. It looks at the clock itself: the timer that ends the context
// may not have run yet where the process was frozen.
func (h *Held) check() error {
	if h.ctx.Err() == nil && now() >= h.deadline() {
		h.end(h.expired())
	}
	return h.cause()
}

func (h *Held) expired() error {
	return fmt.Errorf("lock %q: %w: its lease was over before it could be extended", h.claim.name, ErrLost)
}
