package cache

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
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
func (l *listener) subscription(ctx context.Context, h *subscriptionState) (stood bool, err error) {
	// A separate context: a client that heeds contexts would end the read at the deadline of the
	// caller.
	s := &subscription{l: l, h: h, backlog: newBacklog(), left: slices.Clone(h.channels), begun: time.Now()}
	l.authentic.compareClock(ctx)
	sub := l.redis.client.Subscribe(ctx, s.left...) // what goes wrong here shows at Receive
	defer sub.Close()
	defer s.backlog.close()
	l.run.launchEar(func() { l.receive(ctx, sub, s.backlog) })
	l.run.launchEar(func() { l.memory.gate.watch(s.backlog) })
	ticks := time.Tick(l.config.Period / 4)
	for err == nil {
		select {
		case <-ctx.Done():
			err = ctx.Err()
		case <-ticks:
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
		b.setArrival(a.at)
		if m, ok := a.got.(*redis.Message); ok {
			a.decode(m.Payload)
			a.rejected = l.authentic.authenticate(m, a)
			a.generation = l.memory.evictAndLog(a.message.Keys, a.globs)
			l.memory.unlinks.rememberUnlinks(a, l.memory.mark())
		}
		if !b.push(a) || err != nil {
			return
		}
	}
}

// hear sweeps the matches of the patterns of a message, and then checks its number for lost
// messages.
func (l *listener) hear(h *subscriptionState, a *arrival) {
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
			a.decode(message.Payload)
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

const (
	// longestBacklog is how many messages, keys and patterns wait to be applied at most.
	longestBacklog = logLength
	// longestWait is how long one may wait before the memory is shut, and watchStep how often that
	// is looked at.
	longestWait = time.Second
	watchStep   = 100 * time.Millisecond
)

// An arrival holds one result of a subscription: a redis.Message, a redis.Pong, a
// redis.Subscription, or the error that ended it.
type arrival struct {
	at  time.Time
	got any

	// Of a message:
	message    protocol.Message
	globs      []protocol.Glob
	generation uint64 // a sweep looks through its values
	fault      error  // why it cannot be read, or was dropped
	rejected   error  // why only its keys and patterns count
}

// decode decodes the text of a message. One that cannot be read has no keys and no globs.
func (a *arrival) decode(text string) {
	if a.message, a.fault = protocol.DecodeMessage([]byte(text)); a.fault != nil {
		return
	}
	globs := make([]protocol.Glob, len(a.message.Patterns))
	for i, pattern := range a.message.Patterns {
		var err error
		if globs[i], err = protocol.CompileGlob(pattern); err != nil {
			a.fault = fmt.Errorf("%w: %q: %w", ErrInvalidationPattern, pattern, err)
			return
		}
	}
	a.globs = globs
}

// size returns the room that an arrival takes in a backlog. Arrivals other than messages are few.
func (a *arrival) size() int {
	if _, ok := a.got.(*redis.Message); !ok || a.fault == errBacklog {
		return 0
	}
	return 1 + len(a.message.Keys) + len(a.message.Patterns)
}

// A backlog holds arrivals in their order until they are applied. Adding one does not block. Safe
// for concurrent use by one goroutine that adds and one that applies.
type backlog struct {
	ready chan struct{} // has an element if something waits

	mu      sync.Mutex
	waiting []*arrival
	size    int
	begun   time.Time // when what is yet to be added arrived, or zero
	closed  chan struct{}
}

func newBacklog() *backlog {
	return &backlog{ready: make(chan struct{}, 1), closed: make(chan struct{})}
}

// setArrival records the time of an arrival that add will append.
func (b *backlog) setArrival(at time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.begun = at
}

// push appends an arrival. Without room it drops messages and appends one arrival with errBacklog
// for all of them in a row. It returns false after close.
func (b *backlog) push(a *arrival) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.begun = time.Time{}
	select {
	case <-b.closed:
		return false
	default:
	}
	size := a.size()
	if size > 0 && b.size+size > longestBacklog {
		if n := len(b.waiting); n > 0 && b.waiting[n-1].fault == errBacklog {
			return true
		}
		*a, size = arrival{at: a.at, got: a.got, fault: errBacklog}, 0
	}
	b.waiting, b.size = append(b.waiting, a), b.size+size
	b.signal()
	return true
}

var (
	errBacklog = fmt.Errorf("more than %d keys and patterns wait to be applied", longestBacklog)
	errLate    = fmt.Errorf("an invalidation has waited for more than %v to be applied", longestWait)
	errShut    = fmt.Errorf("nothing is given out from memory: %w", errLate)
)

func (b *backlog) signal() {
	select {
	case b.ready <- struct{}{}:
	default:
	}
}

// oldest returns the first arrival, after ready. It waits until done.
func (b *backlog) oldest() *arrival {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.waiting[0]
}

// done removes the oldest arrival.
func (b *backlog) done() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.size -= b.waiting[0].size()
	b.waiting[0] = nil
	if b.waiting = b.waiting[1:]; len(b.waiting) > 0 {
		b.signal()
	}
}

func (b *backlog) empty() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.waiting) == 0 && b.begun.IsZero()
}

// late reports whether something has waited for longer than longestWait.
func (b *backlog) late(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	since := b.begun
	if len(b.waiting) > 0 {
		since = b.waiting[0].at
	}
	return !since.IsZero() && now.Sub(since) > longestWait
}

func (b *backlog) close() { close(b.closed) }

var (
	errResubscribed = errors.New("the connection was lost and restored")
	errNoPing       = errors.New("a ping cannot be sent")
	errOldServer    = errors.New("its connection leads to a server that workers have left")
	errMoved        = errors.New("a worker has moved to another channel")
)

// A subscription is one attempt to listen.
type subscription struct {
	l       *listener
	h       *subscriptionState
	backlog *backlog
	left    []string // channels whose confirmation is missing
	stood   bool
	begun   time.Time
	nonce   string // of the PING that has no answer yet
	asked   time.Time
}

// tick sends a PING when one is due. Time advances in the state only while no message waits: the
// missing heartbeat may be among the waiting messages.
func (s *subscription) tick(ctx context.Context, sub *redis.PubSub) error {
	now, period := time.Now(), s.l.config.Period
	if s.stood && now.Sub(s.asked) >= period && s.nonce == "" {
		s.nonce, s.asked = rand.Text(), now
		if sub.Ping(ctx, s.nonce) != nil {
			return errNoPing
		}
		s.l.authentic.compareClock(ctx)
	}
	if s.l.redis.alive.left.Load() > s.begun.UnixNano() {
		return errOldServer
	}
	s.admitLateness(now)
	if s.backlog.empty() {
		s.l.obey(s.h.tick(now))
		limit := silentPeriods * period
		if now.Sub(s.h.pong) > limit && (s.stood || now.Sub(s.begun) > limit) {
			return s.h.why // the connection is useless
		}
	}
	return nil
}

// admitLateness restarts the subscription's state if L1 was shut.
func (s *subscription) admitLateness(now time.Time) {
	if s.l.memory.wasShut() {
		s.l.obey(s.h.doubt(now, "%w", errLate))
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
			s.l.obey(s.h.subscribe(a.at))
		}
	case *redis.Pong:
		if s.nonce != "" && got.Payload == s.nonce {
			s.nonce = ""
			s.l.obey(s.h.answer(s.asked, a.at))
		}
	case *redis.Message:
		known := len(s.h.channels)
		if s.l.hear(s.h, a); len(s.h.channels) > known {
			return errMoved
		}
	}
	return nil
}

// advisedAfter is how many names without Config.Prefix cause advice if none has it.
const advisedAfter = 2000

// heardNames counts the keys and patterns of messages. Tag versions have no prefix and do not
// count.
type heardNames struct {
	prefix     string // Config.Prefix
	logger     *slog.Logger
	own, other atomic.Uint64 // with and without the prefix
	advised    atomic.Bool
}

// hear counts the names of a message, and logs once that none of very many has the prefix. Healthy
// does not report it: several applications can share a channel, and one of them may seldom write.
func (n *heardNames) hear(a *arrival) {
	count := func(name string, own bool) {
		switch {
		case strings.HasPrefix(name, protocol.StampPrefix) && !strings.HasPrefix(n.prefix, protocol.StampPrefix):
		case own:
			n.own.Add(1)
		default:
			n.other.Add(1)
		}
	}
	for _, key := range a.message.Keys {
		count(key, strings.HasPrefix(key, n.prefix))
	}
	for _, glob := range a.globs {
		literal := glob.Prefix()
		count(literal, strings.HasPrefix(literal, n.prefix) || strings.HasPrefix(n.prefix, literal))
	}
	if n.own.Load() > 0 || n.other.Load() < advisedAfter || n.advised.Swap(true) {
		return
	}
	example := ""
	if keys := a.message.Keys; len(keys) > 0 {
		example = keys[0]
	}
	n.logger.LogAttrs(context.Background(), slog.LevelWarn, "no key of the workers has the prefix",
		slog.String("prefix", n.prefix), slog.Uint64("names", n.other.Load()), slog.String("example", example),
		slog.String("fix", "compare Config.Prefix with the keys in the map"))
}

// maxMessageKeys are the old and the new one of a rotation.
const maxMessageKeys = 2

// An authenticator checks messages by keys and by their age. Without keys it accepts each message.
type authenticator struct {
	keys  []protocol.MessageKey
	limit time.Duration // of a message's age
	redis *backend
}

// authenticate returns why a message that has arrived is not a worker's, or nil.
func (a *authenticator) authenticate(got *redis.Message, by *arrival) error {
	if len(a.keys) == 0 {
		return nil
	}
	if err := protocol.VerifyMessage([]byte(got.Payload), got.Channel, a.keys...); err != nil {
		return err
	}
	if by.fault != nil && !errors.Is(by.fault, ErrInvalidationPattern) {
		return nil // a worker's message that this version cannot read
	}
	age := time.Duration(a.redis.clock.now()-int64(by.message.Sent)/1000) * time.Millisecond
	if age.Abs() <= a.limit {
		return nil
	}
	a.redis.clock.until.Store(0) // the difference to the clock of Redis may have changed
	return fmt.Errorf("the time in the message is %v ago by the clock of Redis, and the limit is %v", age, a.limit)
}

// compareClock asks Redis for its time if that is due and the age of messages matters. If Redis
// does not answer, the clock keeps running.
func (a *authenticator) compareClock(ctx context.Context) {
	b := a.redis
	if len(a.keys) == 0 || !b.clock.due() {
		return
	}
	sent := time.Now()
	now, err := within(ctx, b, func(ctx context.Context) (time.Time, error) { return b.client.Time(ctx).Result() })
	if err == nil {
		b.clock.heard(now.UnixMicro(), sent)
	}
}
