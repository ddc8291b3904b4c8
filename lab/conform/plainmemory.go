package conform

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/sleep"
	"github.com/unstale/unstale/protocol"
)

// A plainMemory is the in-process cache of a plainReader. It keeps nothing until listen has opened
// it.
type plainMemory struct {
	hello  Line
	plant  string
	period time.Duration

	mu      sync.Mutex
	values  map[string]plainValue
	log     []func(name string) bool // what messages have named, in their order
	doubts  int                      // how often the memory was emptied
	evicted int64

	since  time.Time // of the subscription, or the latest doubt; zero: there is none
	beat   time.Time // the latest heartbeat since then
	pong   time.Time // when the latest PING was sent that was answered
	epochs map[string]uint64
}

type plainValue struct {
	value string
	tags  []string
	life  time.Time
}

// isNamed reports whether a message names the key or a tag of a value.
func (v plainValue) isNamed(key string, named func(name string) bool) bool {
	return named(key) || slices.ContainsFunc(v.tags, func(tag string) bool { return named(protocol.StampKey(tag)) })
}

// A plainMark is taken before a value is asked for.
type plainMark struct {
	doubts, at int
	open       bool
}

func newPlainMemory(hello Line, plant string) *plainMemory {
	return &plainMemory{hello: hello, plant: plant, period: time.Duration(hello.Period) * time.Millisecond, values: map[string]plainValue{}, epochs: map[string]uint64{}}
}

// isOpen reports whether values may be used. Silence empties the memory. The caller holds mu.
func (m *plainMemory) isOpen() bool {
	now, limit := time.Now(), 3*m.period
	if m.since.IsZero() {
		return false
	}
	if now.Sub(m.pong) > limit || !m.beat.IsZero() && now.Sub(m.beat) > limit {
		m.doubt(now)
	}
	return !m.beat.IsZero() && now.Sub(m.since) >= m.period
}

// doubt empties the memory, and refuses what is under way. The caller holds mu.
func (m *plainMemory) doubt(now time.Time) {
	m.doubts++
	m.values, m.since, m.beat = map[string]plainValue{}, now, time.Time{}
}

func (m *plainMemory) applied() (int64, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.evicted, m.isOpen()
}

func (m *plainMemory) value(key string, tags []string) (string, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	v, ok := m.values[key]
	if !ok || !m.isOpen() || time.Now().After(v.life) || slices.ContainsFunc(tags, func(tag string) bool { return !slices.Contains(v.tags, tag) }) {
		return "", false
	}
	return v.value, true
}

func (m *plainMemory) mark() plainMark {
	m.mu.Lock()
	defer m.mu.Unlock()
	open := m.isOpen()
	return plainMark{m.doubts, len(m.log), open}
}

// put keeps a value that was asked for after the mark.
func (m *plainMemory) put(key, value string, tags []string, since plainMark) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !since.open || !m.isOpen() || since.doubts != m.doubts {
		return
	}
	v := plainValue{value, tags, time.Now().Add(time.Minute)}
	if !slices.ContainsFunc(m.log[since.at:], func(named func(string) bool) bool { return v.isNamed(key, named) }) {
		m.values[key] = v
	}
}

func (m *plainMemory) drop(key string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.values, key)
}

// listen subscribes until the context ends. A confirmation empties the memory.
func (m *plainMemory) listen(ctx context.Context, client redis.UniversalClient) {
	for ctx.Err() == nil {
		sub := client.Subscribe(ctx, m.hello.Channel)
		pinging, stop := context.WithCancel(ctx)
		var pings sync.WaitGroup
		pings.Go(func() {
			sleep.Every(pinging, m.period, func(ctx context.Context) {
				_ = sub.Ping(ctx, time.Now().Format(time.RFC3339Nano)) // silence closes the memory
			})
		})
		unblock := context.AfterFunc(ctx, func() { _ = sub.Close() })
		for {
			got, err := sub.Receive(context.Background())
			if err != nil {
				break
			}
			m.hear(got)
		}
		stop()
		pings.Wait()
		unblock()
		_ = sub.Close()
		m.mu.Lock()
		m.doubt(time.Time{})
		m.mu.Unlock()
		_ = sleep.For(ctx, m.period/4)
	}
}

func (m *plainMemory) hear(got any) {
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	switch got := got.(type) {
	case *redis.Subscription:
		m.doubt(now)
		m.pong, m.epochs = now, map[string]uint64{}
	case *redis.Pong:
		if sent, err := time.Parse(time.RFC3339Nano, got.Payload); err == nil {
			m.pong = sent
		}
	case *redis.Message:
		m.apply(got.Payload, now)
	}
}

// apply evicts what a message names, and then compares its number. The caller holds mu.
func (m *plainMemory) apply(text string, now time.Time) {
	message, err := protocol.DecodeMessage([]byte(text))
	if err != nil {
		m.doubt(now)
		return
	}
	for _, key := range message.Keys {
		m.evict(func(name string) bool { return name == key })
	}
	for _, pattern := range message.Patterns {
		shape := func(text string) string { return text }
		if m.plant == characterGlobs {
			shape = narrow
		}
		glob, err := protocol.CompileGlob(shape(pattern))
		if err != nil {
			m.doubt(now)
		}
		m.evict(func(name string) bool { return glob.Match(shape(name)) })
	}
	beat := message.Beat
	last, known := m.epochs[message.Epoch]
	first := message.Seq == 1 || beat != nil && beat.First
	if m.plant != ignoredGap && (known && message.Seq > last+1 || !known && !first) {
		m.doubt(now)
	}
	if !known && beat != nil && beat.After != "" && m.epochs[beat.After] < beat.AfterSeq {
		m.doubt(now)
	}
	m.epochs[message.Epoch] = max(last, message.Seq)
	if beat != nil && !beat.First && !beat.Last && beat.Source == m.hello.Source {
		m.beat = now
	}
	m.evicted += int64(len(message.Keys) + len(message.Patterns))
}

// evict removes what a message names, by key or by tag. The caller holds mu.
func (m *plainMemory) evict(named func(string) bool) {
	m.log = append(m.log, named)
	maps.DeleteFunc(m.values, func(key string, v plainValue) bool { return v.isNamed(key, named) })
}

// narrow is the planted bug: each character becomes one byte.
func narrow(text string) string {
	return strings.Map(func(r rune) rune { return min(r, unicode.MaxASCII) }, text)
}
