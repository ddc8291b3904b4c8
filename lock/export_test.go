package lock

import (
	"context"
	"maps"
	"slices"
	"time"
)

// CheckStatement is checkStatement.
func CheckStatement(query, mode string) error {
	_, err := checkStatement(query, mode)
	return err
}

// NeverPoll has a Locker rely on wake-ups.
func NeverPoll(l *Locker) { l.pause = time.Hour }

// Misremember has a Locker believe that the clocks of its servers show another time than they do.
func Misremember(l *Locker, by time.Duration) {
	c := &l.service.(*redisService).clocks
	c.mu.Lock()
	defer c.mu.Unlock()
	for node, o := range c.servers {
		c.servers[node] = offset{o.low + by.Milliseconds(), o.high + by.Milliseconds(), o.answered}
	}
}

// Extend extends a lock at once.
func Extend(ctx context.Context, h *Held) error {
	was, err := h.locker.service.extend(ctx, h.claim)
	if err == nil && !was {
		err = ErrLost
	}
	return err
}

// ExpireAll lets the deadlines of all locks of a Locker be over.
func ExpireAll(l *Locker) {
	l.mu.Lock()
	held := slices.Collect(maps.Keys(l.held))
	l.mu.Unlock()
	for _, h := range held {
		_ = Expire(h)
	}
}

// Expire lets the deadline of a lock be over, as its holder finds out.
func Expire(h *Held) error {
	h.lease.until.Store(int64(now()))
	return h.check()
}

// ServerOf is the server of ZooKeeper with which a Locker speaks.
func ServerOf(l *Locker) string {
	s, _ := l.service.(*zkService).current()
	return s.conn.Server()
}

// Position is position.
var Position = position

// Closed reports whether Close has begun.
func Closed(l *Locker) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.closed
}
