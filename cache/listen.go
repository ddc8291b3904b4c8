package cache

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/sleep"
	"github.com/unstale/unstale/protocol"
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

// A reception is what Receive returns.
type reception struct {
	got any
	err error
}

var (
	errResubscribed = errors.New("the connection was lost in between")
	errNoPing       = errors.New("a ping cannot be sent")
	errMoved        = errors.New("a worker has moved to another channel")
)

// subscription is one attempt. A read has no time limit, since one that runs out in the middle of a message leaves the
// rest of it to be read as the next one; what ends it is that the connection is closed. It reports whether it stood.
func (c *Cache) subscription(ctx context.Context, h *hearing) (stood bool, err error) {
	// A context of its own: a client that heeds contexts would end the read with the caller's deadline.
	channels := slices.Clone(h.channels)
	sub := c.config.Redis.Subscribe(ctx, channels...) // what goes wrong here shows at Receive
	defer sub.Close()
	receptions, stop := make(chan reception), make(chan struct{})
	defer close(stop)
	c.launchIn(&c.ears, func() { receive(ctx, sub, receptions, stop) })
	ticker := time.NewTicker(c.config.Memory.Period / 4)
	defer ticker.Stop()
	nonce, asked, late := "", time.Time{}, time.Now()
	for {
		select {
		case <-ctx.Done():
			return stood, ctx.Err()
		case <-ticker.C:
			now := time.Now()
			if stood && now.Sub(asked) >= c.config.Memory.Period && nonce == "" {
				nonce, asked = rand.Text(), now
				if sub.Ping(ctx, nonce) != nil {
					return stood, errNoPing
				}
			}
			c.obey(h.tick(now))
			if now.Sub(h.pong) > silentPeriods*c.config.Memory.Period && (stood || now.Sub(late) > silentPeriods*c.config.Memory.Period) {
				return stood, h.why // the connection is of no use
			}
		case n := <-receptions:
			now := time.Now()
			switch got := n.got.(type) {
			case nil:
				return stood, n.err
			case *redis.Subscription:
				if !slices.Contains(channels, got.Channel) {
					return stood, errResubscribed
				}
				if channels = slices.DeleteFunc(channels, func(channel string) bool { return channel == got.Channel }); len(channels) == 0 {
					stood = true
					c.obey(h.subscribe(now))
				}
			case *redis.Pong:
				if nonce != "" && got.Payload == nonce {
					nonce = ""
					c.obey(h.answer(now))
				}
			case *redis.Message:
				known := len(h.channels)
				if c.hear(h, got.Payload, now); len(h.channels) > known {
					return stood, errMoved
				}
			}
		}
	}
}

// receive passes on what a subscription brings, until it fails.
func receive(ctx context.Context, sub *redis.PubSub, receptions chan<- reception, stop <-chan struct{}) {
	for {
		got, err := sub.Receive(ctx)
		n := reception{got, err}
		if err != nil {
			n.got = nil
		}
		select {
		case receptions <- n:
		case <-stop:
			return
		}
		if err != nil {
			return
		}
	}
}

// hear evicts what a message names, and then weighs what it says about those that were not heard.
func (c *Cache) hear(h *hearing, text string, now time.Time) {
	m, err := protocol.DecodeMessage([]byte(text))
	if err != nil {
		c.obey(h.misread(now, err))
		return
	}
	globs := make([]protocol.Glob, len(m.Patterns))
	for i, pattern := range m.Patterns {
		if globs[i], err = protocol.CompileGlob(pattern); err != nil {
			c.counts.patternErrors.Add(1)
			_ = h.message(m, now) // its number counts as heard, or its successor would hide the reason
			c.obey(h.misread(now, fmt.Errorf("%w: %q: %w", ErrInvalidationPattern, pattern, err)))
			return
		}
	}
	c.memory.evict(m.Keys, globs)
	c.reports.heard(&m)
	if hook := c.config.Hooks.Evict; hook != nil && len(m.Keys)+len(m.Patterns) > 0 {
		hook(m.Keys, m.Patterns)
	}
	c.obey(h.message(m, now))
}

// obey tells the memory and, where that closes or opens it, the log.
func (c *Cache) obey(v verdict) {
	if !c.memory.obey(v) {
		return
	}
	if v.open {
		c.config.Logger.LogAttrs(c.life, slog.LevelInfo, "memory is open: the worker is heard")
	} else {
		c.config.Logger.LogAttrs(c.life, slog.LevelWarn, "memory is closed", slog.Any("error", v.why))
	}
}
