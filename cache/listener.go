package cache

import (
	"context"
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

// A listener subscribes to the channel of invalidations and applies messages to the memory.
type listener struct {
	config    Memory
	redis     *backend
	memory    *memory   // or nil
	reports   *reporter // or nil
	run       *running
	counts    *counts
	evicted   func(keys, patterns []string) // a hook, or nil
	logger    *slog.Logger
	authentic authenticator
	ended     chan struct{} // closed when listen returns

	rejections complaints // about rejected messages
}

func newListener(config Config, redis *backend, memory *memory, reports *reporter, run *running, counts *counts) *listener {
	return &listener{
		config: config.Memory, redis: redis, memory: memory, reports: reports, run: run, counts: counts,
		evicted: config.Hooks.Evict, logger: config.Logger,
		authentic: authenticator{keys: config.Memory.MessageKeys, limit: silentPeriods * config.Memory.Period, redis: redis},
		ended:     make(chan struct{}),
	}
}

// listen subscribes repeatedly until ctx ends, and applies the messages to L1. Call it once.
func (l *listener) listen(ctx context.Context) {
	defer close(l.ended)
	h := newHearing(l.config)
	for pause := firstListenPause; ; pause = min(2*pause, longestListenPause) {
		stood, err := l.subscription(ctx, h)
		if ctx.Err() != nil {
			return
		}
		l.obey(h.lose(time.Now(), err))
		if stood {
			pause = firstListenPause
		}
		if sleep.For(ctx, jittered(pause)) != nil {
			return
		}
	}
}

// subscription makes one attempt. A read has no time limit: a timeout in the middle of a message
// would leave the rest of it to be parsed as the next one. Closing the connection ends the read. It
// reports whether the subscription was established.
func (l *listener) subscription(ctx context.Context, h *hearing) (stood bool, err error) {
	// A separate context: a client that heeds contexts would end the read at the deadline of the
	// caller.
	s := &subscription{l: l, h: h, backlog: newBacklog(), left: slices.Clone(h.channels), begun: time.Now()}
	l.authentic.compareClock(ctx)
	sub := l.redis.client.Subscribe(ctx, s.left...) // what goes wrong here shows at Receive
	defer sub.Close()
	defer s.backlog.close()
	l.run.launchEar(func() { l.receive(ctx, sub, s.backlog) })
	l.run.launchEar(func() { l.memory.gate.watch(s.backlog) })
	ticker := time.NewTicker(l.config.Period / 4)
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

// receive passes on the messages of a subscription until it fails or the backlog closes. It waits
// only for the mutex of L1.
func (l *listener) receive(ctx context.Context, sub *redis.PubSub, b *backlog) {
	for {
		got, err := sub.Receive(ctx)
		a := &arrival{at: time.Now(), got: got}
		if err != nil {
			a.got = err
		}
		b.begin(a.at)
		if m, ok := a.got.(*redis.Message); ok {
			a.read(m.Payload)
			a.rejected = l.authentic.authenticate(m, a)
			a.generation = l.memory.note(a.message.Keys, a.globs)
			l.memory.unlinks.note(a, l.memory.mark())
		}
		if !b.add(a) || err != nil {
			return
		}
	}
}

// hear sweeps the matches of the patterns of a message, and then checks its number for lost
// messages.
func (l *listener) hear(h *hearing, a *arrival) {
	m := &a.message
	switch {
	case a.rejected != nil:
		l.reject(a)
		return
	case a.fault == errBacklog:
		l.logger.LogAttrs(l.run.life, slog.LevelWarn, "messages are dropped, and memory is emptied", slog.Any("error", a.fault))
		l.obey(h.doubt(a.at, "%w", a.fault))
		return
	case errors.Is(a.fault, ErrInvalidationPattern):
		l.counts.patternErrors.Add(1)
		// its number counts as received, or its successor would hide the reason
		_ = h.message(*m, a.at)
		fallthrough
	case a.fault != nil:
		l.obey(h.misread(a.at, a.fault))
		return
	}
	l.evict(a)
	l.memory.names.hear(a)
	l.reports.heard(m)
	if m.Beat != nil {
		l.redis.alive.heartbeat(m.Beat, a.at.Add(elsewhereAfter))
	}
	l.obey(h.message(*m, a.at))
}

// evict removes what the patterns of a message match. Its keys went when it arrived.
func (l *listener) evict(a *arrival) {
	m := &a.message
	l.memory.sweep(a.globs, a.generation)
	l.memory.evicted.Add(uint64(len(m.Keys) + len(m.Patterns)))
	if hook := l.evicted; hook != nil && len(m.Keys)+len(m.Patterns) > 0 {
		hook(m.Keys, m.Patterns)
	}
}

// obey applies a verdict to L1, and logs if that closes or opens it.
func (l *listener) obey(v verdict) {
	changed, late := l.memory.obey(v)
	switch {
	case changed && v.open:
		l.logger.LogAttrs(l.run.life, slog.LevelInfo, "memory is open: heartbeats of the worker arrive")
	case changed:
		l.logger.LogAttrs(l.run.life, slog.LevelWarn, "memory is closed", slog.Any("error", v.why))
	}
	switch {
	case late && v.late != nil:
		l.logger.LogAttrs(l.run.life, slog.LevelWarn, "invalidation is behind", slog.Any("error", v.late))
	case late && v.open:
		l.logger.LogAttrs(l.run.life, slog.LevelInfo, "invalidation is no longer behind")
	}
}

// reject evicts the names of a message, which is harmless, and counts it. The message proves
// nothing and is not a gap.
func (l *listener) reject(a *arrival) {
	l.evict(a)
	n := l.counts.rejected.Add(1)
	if l.rejections.due() {
		l.logger.LogAttrs(l.run.life, slog.LevelWarn, "message rejected", slog.Any("error", a.rejected), slog.Uint64("rejected", n),
			slog.String("fix", "give workers a key of Memory.MessageKeys, and let only workers publish on the channel"))
	}
}

// listenBriefly subscribes for two periods, or until a heartbeat names where a worker writes. It is
// for a Cache without Memory, which has no subscription.
func (l *listener) listenBriefly() {
	limit := 2*l.config.Period + searchLimit
	l.run.launchEar(func() {
		ctx, cancel := context.WithTimeout(l.run.life, limit)
		defer cancel()
		sub := l.redis.client.Subscribe(ctx, l.config.Channel)
		defer sub.Close()
		defer context.AfterFunc(ctx, func() { _ = sub.Close() })()
		for {
			got, err := sub.Receive(ctx)
			if err != nil {
				return
			}
			message, ok := got.(*redis.Message)
			if !ok {
				continue
			}
			var a arrival
			a.read(message.Payload)
			b := a.message.Beat
			if a.fault != nil || b == nil || l.authentic.authenticate(message, &a) != nil {
				continue
			}
			l.redis.alive.heartbeat(b, time.Now().Add(listenPause+limit))
			if b.Alive && l.redis.alive.counts(b.Source) {
				return
			}
		}
	})
}
