package lock

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// glance is how often a keeper looks at the clock: timers stand still while the machine is suspended.
const glance = 250 * time.Millisecond

// A lease is when a lock is lost, and whether it is extended till then.
type lease struct {
	until atomic.Int64 // by now()
	left  atomic.Bool  // to itself
}

func (h *Held) deadline() time.Duration { return time.Duration(h.lease.until.Load()) }

// An extension is the outcome of a request to extend.
type extension struct {
	sent time.Duration
	was  bool // ours
	err  error
}

// keep extends the lock until it is released or lost, and ends its context at the deadline whatever the backend does:
// requests run beside it.
func (h *Held) keep() {
	config := h.locker.config
	period, again := config.TTL/3, max(config.TTL/10, config.Timeout)
	next := h.deadline() + config.Margin - config.TTL + period
	results := make(chan extension, 1)
	defer h.lapse()
	for {
		wait := min(glance, h.deadline()-now())
		if !h.lease.left.Load() {
			wait = min(wait, next-now())
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
				h.end(fmt.Errorf("lock %q: %w: it has vanished from the backend, or is another's", h.claim.name, ErrLost))
			case r.err == nil:
				h.lease.until.Store(int64(max(h.deadline(), r.sent+config.TTL-config.Margin)))
				next = r.sent + period
			}
		case <-timer.C:
		}
		if h.check() != nil {
			return
		}
		if !h.lease.left.Load() && now() >= next {
			next = now() + again
			h.extend(results)
		}
	}
}

// extend sends a request, whose result is dropped if nobody takes it: then the lock is over.
func (h *Held) extend(results chan<- extension) {
	h.locker.launch(func() {
		sent := now()
		ctx, cancel := context.WithTimeout(context.Background(), h.locker.config.Timeout)
		defer cancel()
		was, err := h.locker.service.extend(ctx, h.claim)
		select {
		case results <- extension{sent, was, err}:
		case <-h.over:
		}
	})
}

// lapse tells the backend of a lock that was lost and not released, when others may have it.
func (h *Held) lapse() {
	if !errors.Is(context.Cause(h.ctx), ErrLost) {
		return
	}
	timer := time.NewTimer(h.locker.config.Margin)
	defer timer.Stop()
	select {
	case <-timer.C:
		h.locker.service.lapsed(h.claim)
	case <-h.locker.life.Done():
	}
}

// leave stops extending. The lock ends with its lease, or with Release.
func (h *Held) leave() { h.lease.left.Store(true) }
