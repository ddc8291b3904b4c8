package cache

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/sleep"
)

// The pauses between two attempts to subscribe; each is varied by half.
const (
	firstListenPause   = 50 * time.Millisecond
	longestListenPause = 3 * time.Second
)

// listen subscribes again and again until ctx ends, and does to the memory what is heard.
func (c *Cache) listen(ctx context.Context) {
	h := newHearing(c.config.Memory)
	for pause := firstListenPause; ; pause = min(2*pause, longestListenPause) {
		stood, err := c.subscription(ctx, h)
		if ctx.Err() != nil {
			return
		}
		c.obey(h.lose(time.Now(), err))
		if stood {
			pause = firstListenPause
		}
		if sleep.For(ctx, jittered(pause)) != nil {
			return
		}
	}
}

var (
	errResubscribed = errors.New("the connection was lost in between")
	errNoPing       = errors.New("a ping cannot be sent")
	errOldServer    = errors.New("its connection leads to a server that workers have left")
	errMoved        = errors.New("a worker has moved to another channel")
)

// A subscription is one attempt to listen.
type subscription struct {
	c       *Cache
	h       *hearing
	backlog *backlog
	left    []string // channels whose confirmation is missing
	stood   bool
	begun   time.Time
	nonce   string // of the PING that has no answer yet
	asked   time.Time
}

// subscription is one attempt. A read has no time limit, since one that runs out in the middle of a message leaves the
// rest of it to be read as the next one; what ends it is that the connection is closed. It reports whether it stood.
func (c *Cache) subscription(ctx context.Context, h *hearing) (stood bool, err error) {
	// A context of its own: a client that heeds contexts would end the read with the caller's deadline.
	s := &subscription{c: c, h: h, backlog: newBacklog(), left: slices.Clone(h.channels), begun: time.Now()}
	sub := c.config.Redis.Subscribe(ctx, s.left...) // what goes wrong here shows at Receive
	defer sub.Close()
	defer s.backlog.close()
	c.launchIn(&c.ears, func() { c.receive(ctx, sub, s.backlog) })
	c.launchIn(&c.ears, func() { c.memory.watch(s.backlog) })
	ticker := time.NewTicker(c.config.Memory.Period / 4)
	defer ticker.Stop()
	for err == nil {
		select {
		case <-ctx.Done():
			err = ctx.Err()
		case <-ticker.C:
			err = s.tick(ctx, sub)
		case <-s.backlog.ready:
			a := s.backlog.oldest()
			err = s.apply(a)
			s.backlog.done()
		}
	}
	return s.stood, err
}

// tick sends a PING when one is due. Time passes for the hearing only while nothing waits: the
// heartbeat that it misses may be among what does.
func (s *subscription) tick(ctx context.Context, sub *redis.PubSub) error {
	now, period := time.Now(), s.c.config.Memory.Period
	if s.stood && now.Sub(s.asked) >= period && s.nonce == "" {
		s.nonce, s.asked = rand.Text(), now
		if sub.Ping(ctx, s.nonce) != nil {
			return errNoPing
		}
	}
	if s.c.redis.alive.left.Load() > s.begun.UnixNano() {
		return errOldServer
	}
	s.admitLateness(now)
	if s.backlog.empty() {
		s.c.obey(s.h.tick(now))
		limit := silentPeriods * period
		if now.Sub(s.h.pong) > limit && (s.stood || now.Sub(s.begun) > limit) {
			return s.h.why // the connection is of no use
		}
	}
	return nil
}

// admitLateness has the hearing begin again if the memory was shut.
func (s *subscription) admitLateness(now time.Time) {
	if s.c.memory.wasShut() {
		s.c.obey(s.h.doubt(now, "%w", errLate))
	}
}

// apply does what the oldest arrival asks for, as of the time when it came.
func (s *subscription) apply(a *arrival) error {
	s.admitLateness(time.Now())
	switch got := a.got.(type) {
	case error:
		return got
	case *redis.Subscription:
		if !slices.Contains(s.left, got.Channel) {
			return errResubscribed
		}
		if s.left = slices.DeleteFunc(s.left, func(channel string) bool { return channel == got.Channel }); len(s.left) == 0 {
			s.stood = true
			s.c.obey(s.h.subscribe(a.at))
		}
	case *redis.Pong:
		if s.nonce != "" && got.Payload == s.nonce {
			s.nonce = ""
			s.c.obey(s.h.answer(s.asked, a.at))
		}
	case *redis.Message:
		known := len(s.h.channels)
		if s.c.hear(s.h, a); len(s.h.channels) > known {
			return errMoved
		}
	}
	return nil
}

// receive passes on what a subscription brings, until it fails or nobody takes it. It waits for nothing
// but the memory's mutex.
func (c *Cache) receive(ctx context.Context, sub *redis.PubSub, b *backlog) {
	for {
		got, err := sub.Receive(ctx)
		a := &arrival{at: time.Now(), got: got}
		if err != nil {
			a.got = err
		}
		b.begin(a.at)
		if m, ok := a.got.(*redis.Message); ok {
			a.read(m.Payload)
			a.generation = c.memory.note(a.message.Keys, a.globs)
		}
		if !b.add(a) || err != nil {
			return
		}
	}
}

// hear sweeps what the patterns of a message match, and then weighs what it says about those that were not heard.
func (c *Cache) hear(h *hearing, a *arrival) {
	m := &a.message
	switch {
	case a.fault == errBacklog:
		c.obey(h.doubt(a.at, "%w", a.fault))
		return
	case errors.Is(a.fault, ErrInvalidationPattern):
		c.counts.patternErrors.Add(1)
		_ = h.message(*m, a.at) // its number counts as heard, or its successor would hide the reason
		fallthrough
	case a.fault != nil:
		c.obey(h.misread(a.at, a.fault))
		return
	}
	c.memory.sweep(a.globs, a.generation)
	c.memory.evicted.Add(uint64(len(m.Keys) + len(m.Patterns)))
	c.reports.heard(m)
	if m.Beat != nil {
		c.redis.alive.heartbeat(m.Beat, a.at)
	}
	if hook := c.config.Hooks.Evict; hook != nil && len(m.Keys)+len(m.Patterns) > 0 {
		hook(m.Keys, m.Patterns)
	}
	c.obey(h.message(*m, a.at))
}

// obey tells the memory and, where that closes or opens it, the log.
func (c *Cache) obey(v verdict) {
	changed, late := c.memory.obey(v)
	switch {
	case changed && v.open:
		c.config.Logger.LogAttrs(c.life, slog.LevelInfo, "memory is open: the worker is heard")
	case changed:
		c.config.Logger.LogAttrs(c.life, slog.LevelWarn, "memory is closed", slog.Any("error", v.why))
	}
	switch {
	case late && v.late != nil:
		c.config.Logger.LogAttrs(c.life, slog.LevelWarn, "invalidation is behind", slog.Any("error", v.late))
	case late && v.open:
		c.config.Logger.LogAttrs(c.life, slog.LevelInfo, "invalidation is no longer behind")
	}
}
