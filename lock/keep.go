package lock

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/unstale/unstale/lock/internal/locking"
)

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
		timer := time.NewTimer(max(wait, 0))
		select {
		case <-h.over:
			timer.Stop()
			return
		case r := <-results:
			timer.Stop()
			switch {
			case r.err == nil && !r.was:
				h.end(fmt.Errorf("lock %q: %w: it has vanished from the backend, or is another's", h.claim.Name, ErrLost))
			case r.err == nil:
				h.lease.until.Store(int64(max(h.deadline(), r.sent+config.TTL-config.Margin)))
				next = r.sent + period
			}
		case <-timer.C:
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
	timer := time.NewTimer(h.locker.config.Margin)
	defer timer.Stop()
	select {
	case <-timer.C:
		h.locker.service.Lapsed(h.claim)
	case <-h.locker.life.Done():
	}
}

// leave stops extending. The lock ends with its lease, or with Release.
func (h *Held) leave() { h.lease.left.Store(true) }
