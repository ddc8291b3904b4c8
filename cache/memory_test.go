package cache_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/cache"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/protocol"
)

// period is that of the tests' heartbeats. A busy machine may be late by two of them.
const period = 500 * time.Millisecond

// A beater is a worker that can be heard: the messages are made here, with heartbeats in them.
type beater struct {
	w       *world
	channel string
	epoch   string
	seq     uint64
	stop    context.CancelFunc
	publish func(protocol.Message) // numbers and sends
}

// memoryOf is a configuration whose channel is the test's own.
func memoryOf(channel string) cache.Memory {
	return cache.Memory{Size: 1000, Channel: channel, Sources: []string{"s"}, Period: period}
}

// beat starts heartbeats, until the test ends or stop is called.
func (w *world) beat(channel, epoch string) *beater {
	ctx, cancel := context.WithCancel(w.Context())
	b := &beater{w: w, channel: channel, epoch: epoch, stop: cancel}
	client := clientOf(w, w.url)
	done := make(chan struct{})
	send := make(chan protocol.Message)
	go func() {
		defer close(done)
		ticker := time.NewTicker(period / 2)
		defer ticker.Stop()
		for {
			m := protocol.Message{Beat: &protocol.Beat{Source: "s"}}
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			case m = <-send:
			}
			b.seq++
			m.Epoch, m.Seq, m.At = epoch, b.seq, time.Now()
			if b.seq == 1 && m.Beat != nil {
				m.Beat.First = true
			}
			_ = client.Publish(ctx, channel, m.Append(nil, protocol.FormatEvent)).Err()
		}
	}()
	w.Cleanup(func() { cancel(); <-done })
	b.publish = func(m protocol.Message) { send <- m }
	return b
}

// open waits until values are given out from memory.
func open(t testing.TB, c *cache.Cache) {
	t.Helper()
	testenv.Eventually(t, "memory to open", func() bool { return c.Healthy() == nil })
}

func TestMemory(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	channel := "c:" + t.Name()
	c := w.cache(cache.Config{Prefix: "p:", Memory: memoryOf(channel)})
	wantFetch(t, "closed", c, "k", w.db.read, nil, "old", cache.FromLoader)
	wantFetch(t, "closed", c, "k", w.db.read, nil, "old", cache.FromRedis)
	b := w.beat(channel, "e")
	open(t, c)
	wantFetch(t, "from before it opened", c, "k", w.db.read, nil, "old", cache.FromRedis)
	wantFetch(t, "then", c, "k", w.db.read, nil, "old", cache.FromMemory)
	skip := cache.MustPolicy(cache.Options{TTL: time.Minute, SkipMemory: true})
	wantFetch(t, "skipped", c, "k", w.db.read, skip, "old", cache.FromRedis)
	wantFetch(t, "loaded", c, "tagged", w.db.read, cache.Moderate.Tagged("t"), "old", cache.FromLoader)
	wantFetch(t, "loaded", c, "tagged", w.db.read, cache.Moderate.Tagged("t"), "old", cache.FromMemory)
	if s := c.Statistics(); s.L1Hits != 2 || s.L1Size != 2 {
		t.Errorf("%+v", s)
	}
	for _, e := range []struct {
		key  string
		name string
		m    protocol.Message
	}{
		{"k", "p:k", protocol.Message{Keys: []string{"p:k", "other"}}},
		{"k", "p:k", protocol.Message{Patterns: []string{"p:?"}}},
		{"tagged", protocol.StampKey("t"), protocol.Message{Keys: []string{protocol.StampKey("t")}}},
	} {
		value := fmt.Sprint(e.m)
		policy := cache.Moderate.Tagged("t")
		wantFetch(t, value, c, e.key, w.db.read, policy, w.db.value, cache.FromMemory)
		w.commit(value, e.name)
		before := c.Statistics().Invalidations
		b.publish(e.m)
		testenv.Eventually(t, "the message", func() bool { return c.Statistics().Invalidations > before })
		wantFetch(t, value, c, e.key, w.db.read, policy, value, cache.FromLoader)
		wantFetch(t, value, c, e.key, w.db.read, policy, value, cache.FromMemory)
		w.unlink("p:k", "p:tagged")
		must(t, c.Delete(t.Context(), "k", "tagged"))
		for _, key := range []string{"k", "tagged"} {
			wantFetch(t, value, c, key, w.db.read, policy, value, cache.FromLoader)
		}
	}
	w.db.set("newest")
	must(t, c.DeleteTag(t.Context(), "t"))
	wantFetch(t, "DeleteTag", c, "tagged", w.db.read, cache.Moderate.Tagged("t"), "newest", cache.FromLoader)
	must(t, c.Delete(t.Context(), "k"))
	wantFetch(t, "Delete", c, "k", w.db.read, nil, "newest", cache.FromLoader)
	wantFetch(t, "then", c, "k", w.db.read, nil, "newest", cache.FromMemory)
	c.Clear()
	wantFetch(t, "Clear", c, "k", w.db.read, nil, "newest", cache.FromRedis)
	b.stop()
	testenv.Eventually(t, "memory to close", func() bool { return c.Healthy() != nil })
	wantFetch(t, "closed", c, "k", w.db.read, nil, "newest", cache.FromRedis)
}

// What Redis answered before an eviction, to a read or to a fill, is not put into memory after it.
func TestMemoryIsRaced(t *testing.T) {
	t.Parallel()
	for name, m := range map[string]protocol.Message{
		"key": {Keys: []string{"k"}}, "tag": {Keys: []string{"stamp:t"}}, "pattern": {Patterns: []string{"k*"}},
	} {
		for _, verb := range []string{"read", "lease", "fill"} {
			t.Run(name+" and "+verb, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				channel := "c:" + t.Name()
				other := w.cache(cache.Config{})
				policy := cache.Moderate.Tagged("t")
				fetchElsewhere := func() { wantFetch(t, "elsewhere", other, "k", w.db.read, policy, "old", cache.FromLoader) }
				stop := stopAt(verb)
				if verb == "lease" {
					stop.before = fetchElsewhere
				}
				c := w.cache(cache.Config{Memory: memoryOf(channel), Hooks: cache.Hooks{Redis: stop.hook}})
				b := w.beat(channel, "e")
				open(t, c)
				if verb == "read" {
					fetchElsewhere()
				}
				stop.armed.Store(true)
				early := fetchBeside(t, c, "k", w.db.read, policy)
				<-stop.reached
				w.commit("new", "k", "stamp:t")
				b.publish(m)
				testenv.Eventually(t, "the message", func() bool { return c.Statistics().Invalidations > 0 })
				close(stop.goOn)
				wantAnswer(t, "the caller from before", early, "old")
				wantFetch(t, "the caller from after", c, "k", w.db.read, policy, "new", cache.FromLoader)
			})
		}
	}
}

// Every loss of the subscription empties the memory: cut, and swallowed in silence.
func TestMemoryAndTheSubscription(t *testing.T) {
	t.Parallel()
	for _, fault := range []string{"cut", "swallowed", "killed by the server", "a gap", "unreadable"} {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			options, err := redis.ParseURL(w.url)
			must(t, err)
			link := newLink(t, options.Addr)
			options.Addr, options.ContextTimeoutEnabled = link.Addr(), true
			client := redis.NewClient(options)
			t.Cleanup(func() { _ = client.Close() })
			channel := "c:" + t.Name()
			c := w.cache(cache.Config{Redis: client, Memory: memoryOf(channel)})
			b := w.beat(channel, "e")
			open(t, c)
			wantFetch(t, "first", c, "k", w.db.read, nil, "old", cache.FromLoader)
			wantFetch(t, "second", c, "k", w.db.read, nil, "old", cache.FromMemory)
			// Nobody hears of this change.
			w.commit("new", "k")
			switch fault {
			case "cut":
				must(t, link.Cut())
			case "swallowed":
				must(t, link.Swallow())
			case "killed by the server":
				must(t, w.client.Do(t.Context(), "client", "kill", "type", "pubsub").Err())
			case "a gap":
				b.publish(protocol.Message{}) // counted
				must(t, w.client.Publish(t.Context(), channel, protocol.Message{Epoch: "e", Seq: 1 << 40}.Append(nil, protocol.FormatEvent)).Err())
			case "unreadable":
				must(t, w.client.Publish(t.Context(), channel, `{"v":2}`).Err())
			}
			testenv.Eventually(t, "memory to close", func() bool { return c.Healthy() != nil })
			link.Calm(t.Context())
			testenv.Eventually(t, "the new value", func() bool {
				got, err := cache.FetchResult(t.Context(), c, "k", w.db.read, nil)
				if err != nil || got.Value != "new" {
					t.Fatalf("%+v, %v", got, err)
				}
				return got.Source != cache.FromLoader || fault == "a gap"
			})
			if fault != "a gap" { // whose epoch is never right again
				open(t, c)
			}
		})
	}
}

// Accepted staleness opens the memory without heartbeats, and bounds what it keeps.
func TestMemoryWithoutHeartbeats(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	channel := "c:" + t.Name()
	c := w.cache(cache.Config{Memory: cache.Memory{Size: 10, Channel: channel, MaxStaleness: 300 * time.Millisecond}})
	open(t, c)
	wantFetch(t, "first", c, "k", w.db.read, nil, "old", cache.FromLoader)
	w.commit("new", "k") // and nobody says so
	testenv.Eventually(t, "the new value", func() bool {
		got, err := cache.FetchResult(t.Context(), c, "k", w.db.read, nil)
		return err == nil && got.Value == "new"
	})
	must(t, w.client.Publish(t.Context(), channel, `["k"]`).Err())
	testenv.Eventually(t, "a message of the array format", func() bool { return c.Statistics().Invalidations == 1 })
}

// A hit in memory allocates nothing.
func TestMemoryAllocatesNothing(t *testing.T) {
	w := newWorld(t)
	c := w.cache(cache.Config{Prefix: "zahraah:prod:", Memory: cache.Memory{Size: 100, Channel: "c:" + t.Name(), MaxStaleness: time.Hour}})
	open(t, c)
	ctx := t.Context()
	load := func(context.Context) (product, error) { return product{42, "a name of some length", 12.5}, nil }
	_, err := cache.Fetch(ctx, c, "k", load, cache.Static)
	must(t, err)
	if n := testing.AllocsPerRun(1000, func() { _, _ = cache.Fetch(ctx, c, "k", load, cache.Static) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
