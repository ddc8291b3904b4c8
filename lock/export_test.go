package lock

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/unstale/unstale/lock/internal/locking"
)

// CheckStatement is checkStatement.
func CheckStatement(query, mode string) error {
	_, err := checkStatement(query, mode)
	return err
}

// NeverPoll has a Locker rely on wake-ups.
func NeverPoll(l *Locker) { l.pause = time.Hour }

// Misremember shifts the server times that a Locker has stored.
func Misremember(l *Locker, by time.Duration) {
	c := &l.service.(*redisService).clocks
	c.mu.Lock()
	defer c.mu.Unlock()
	for node, o := range c.servers {
		c.servers[node] = offset{o.low + by.Milliseconds(), o.high + by.Milliseconds(), o.answered}
	}
}

// Extend extends a lock immediately.
func Extend(ctx context.Context, h *Held) error {
	was, err := h.locker.service.Extend(ctx, h.claim)
	if err == nil && !was {
		err = ErrLost
	}
	return err
}

// ExpireAll moves the deadlines of all locks of a Locker into the past.
func ExpireAll(l *Locker) {
	l.mu.Lock()
	held := slices.Collect(maps.Keys(l.held))
	l.mu.Unlock()
	for _, h := range held {
		_ = Expire(h)
	}
}

// Expire moves the deadline of a lock into the past, and returns the error that its holder gets.
func Expire(h *Held) error {
	h.lease.until.Store(int64(locking.Now()))
	return h.check()
}

// Closed reports whether Close has begun.
func Closed(l *Locker) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.closed
}
