package cache_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/cache"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/protocol"
)

// period is the heartbeat period of the tests. A busy machine may be late by two of them.
const period = 500 * time.Millisecond

// A beater is a worker that sends heartbeats: the test creates the messages, with heartbeats in
// them.
type beater struct {
	w       *world
	channel string
	epoch   string
	seq     uint64
	stop    context.CancelFunc
	publish func(protocol.Message) // numbers and sends
}

// memoryOf returns a configuration whose channel is the test's own.
func memoryOf(channel string) cache.Memory {
	return cache.Memory{Size: 1000, Channel: channel, Sources: []string{"s"}, Period: period}
}

// beat starts heartbeats, signed if there is a key, until the test ends or stop is called.
func (w *world) beat(channel, epoch string, key ...protocol.MessageKey) *beater {
	ctx, cancel := context.WithCancel(w.Context())
	b := &beater{w: w, channel: channel, epoch: epoch, stop: cancel}
	client := testenv.Client(w, w.url)
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
			text := m.Append(nil, protocol.FormatEvent)
			if len(key) > 0 {
				m.Sent = uint64(time.Now().UnixMicro())
				text = m.AppendSigned(nil, channel, key[0])
			}
			_ = client.Publish(ctx, channel, text).Err()
		}
	}()
	w.Cleanup(func() { cancel(); <-done })
	b.publish = func(m protocol.Message) { send <- m }
	return b
}

// keep fetches a key until its value is given out from memory. On a busy machine, a load may take too
// long, or memory may close meanwhile.
func (w *world) keep(c *cache.Cache, key string) {
	w.Helper()
	testenv.Eventually(w, "a value in memory", func() bool {
		got, err := cache.FetchResult(w.Context(), c, key, w.db.read, nil)
		return err == nil && got.Source == cache.FromMemory
	})
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
	policies := map[string]*cache.Policy{"k": nil, "tagged": cache.Moderate.Tagged("t")}
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
		policy := policies[e.key]
		wantFetch(t, value, c, e.key, w.db.read, policy, w.db.value, cache.FromMemory)
		w.commit(value, e.name)
		before := c.Statistics().Invalidations
		b.publish(e.m)
		testenv.Eventually(t, "the message", func() bool { return c.Statistics().Invalidations > before })
		wantFetch(t, value, c, e.key, w.db.read, policy, value, cache.FromLoader)
		wantFetch(t, value, c, e.key, w.db.read, policy, value, cache.FromMemory)
		w.unlink("p:k", "p:tagged")
		testenv.Must(t, c.Delete(t.Context(), "k", "tagged"))
		for _, key := range []string{"k", "tagged"} {
			wantFetch(t, value, c, key, w.db.read, policies[key], value, cache.FromLoader)
		}
	}
	w.db.set("newest")
	testenv.Must(t, c.DeleteTag(t.Context(), "t"))
	wantFetch(t, "DeleteTag", c, "tagged", w.db.read, cache.Moderate.Tagged("t"), "newest", cache.FromLoader)
	testenv.Must(t, c.Delete(t.Context(), "k"))
	wantFetch(t, "Delete", c, "k", w.db.read, nil, "newest", cache.FromLoader)
	wantFetch(t, "then", c, "k", w.db.read, nil, "newest", cache.FromMemory)
	c.Clear()
	wantFetch(t, "Clear", c, "k", w.db.read, nil, "newest", cache.FromRedis)
	b.stop()
	testenv.Eventually(t, "memory to close", func() bool { return c.Healthy() != nil })
	wantFetch(t, "closed", c, "k", w.db.read, nil, "newest", cache.FromRedis)
}

// An answer of Redis from before an eviction, to a read or to a fill, is not stored in L1 after it.
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

// A key or a tag that messages cannot name, because it is not UTF-8, is not kept in L1.
func TestMemoryKeepsWhatMessagesCanName(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	channel := "c:" + t.Name()
	c := w.cache(cache.Config{Prefix: "p:", Memory: memoryOf(channel)})
	b := w.beat(channel, "e")
	open(t, c)
	for _, e := range []struct {
		key, tag string
		kept     cache.Source
	}{
		{"café", "thé", cache.FromMemory},
		{"\uFFFD", "\uFFFD", cache.FromMemory},
		{"caf\xe9", "thé", cache.FromRedis},
		{"cafe", "th\xe9", cache.FromLoader}, // nor can an entry name it
	} {
		policy := cache.Moderate.Tagged(e.tag)
		for _, gone := range []string{"p:" + e.key, protocol.StampKey(e.tag)} {
			what := fmt.Sprintf("%q of tag %q, %q", e.key, e.tag, gone)
			w.db.set("before " + what)
			value := w.db.value
			wantFetch(t, what+": first", c, e.key, w.db.read, policy, value, cache.FromLoader)
			wantFetch(t, what+": second", c, e.key, w.db.read, policy, value, e.kept)
			w.commit(what, gone)
			before := c.Statistics().Invalidations
			b.publish(protocol.Message{Keys: []string{gone}})
			testenv.Eventually(t, "the message", func() bool { return c.Statistics().Invalidations > before })
			wantFetch(t, what+": after the message", c, e.key, w.db.read, policy, what, cache.FromLoader)
			w.unlink("p:" + e.key)
			testenv.Must(t, c.Delete(t.Context(), e.key))
		}
	}
}

// Every loss of the subscription empties L1: a cut connection, and one that swallows messages.
func TestMemoryAndTheSubscription(t *testing.T) {
	t.Parallel()
	for _, fault := range []string{"cut", "swallowed", "killed by the server", "a gap", "unreadable"} {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			options, err := redis.ParseURL(w.url)
			testenv.Must(t, err)
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
			// No message reports this change.
			w.commit("new", "k")
			switch fault {
			case "cut":
				testenv.Must(t, link.Cut())
			case "swallowed":
				testenv.Must(t, link.Swallow())
			case "killed by the server":
				testenv.Must(t, w.client.Do(t.Context(), "client", "kill", "type", "pubsub").Err())
			case "a gap":
				b.publish(protocol.Message{}) // counted
				testenv.Must(t, w.client.Publish(t.Context(), channel, protocol.Message{Epoch: "e", Seq: 1 << 40}.Append(nil, protocol.FormatEvent)).Err())
			case "unreadable":
				testenv.Must(t, w.client.Publish(t.Context(), channel, `{"v":2}`).Err())
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
	w.commit("new", "k") // without a message
	testenv.Eventually(t, "the new value", func() bool {
		got, err := cache.FetchResult(t.Context(), c, "k", w.db.read, nil)
		return err == nil && got.Value == "new"
	})
	testenv.Must(t, w.client.Publish(t.Context(), channel, `["k"]`).Err())
	testenv.Eventually(t, "a message of the array format", func() bool { return c.Statistics().Invalidations == 1 })
}

// A hit in memory allocates nothing.
func TestMemoryAllocatesNothing(t *testing.T) {
	w := newWorld(t)
	c := w.cache(cache.Config{Prefix: "zahraah:prod:", Memory: cache.Memory{Size: 100, Channel: "c:" + t.Name(), MaxStaleness: time.Hour}})
	open(t, c)
	ctx := t.Context()
	load := func(context.Context) (product, error) { return product{42, "a name of some length", 12.5}, nil }
	for name, p := range map[string]*cache.Policy{"bare": cache.Static, "none": nil, "tagged": cache.Static.Tagged("a", "b", "c")} {
		_, err := cache.Fetch(ctx, c, name, load, p)
		testenv.Must(t, err)
		if n := testing.AllocsPerRun(1000, func() { _, _ = cache.Fetch(ctx, c, name, load, p) }); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

// Memory keeps a bare value that was read from Redis no longer than Redis does.
func TestPlainMemoryEndsWithRedis(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	channel := "c:" + t.Name()
	w.beat(channel, "e")
	p := cache.For(time.Hour)
	writer := w.cache(cache.Config{Plain: true, Policy: p})
	c := w.cache(cache.Config{Plain: true, Policy: p, Memory: memoryOf(channel)})
	open(t, c)
	many := func(ctx context.Context, keys []string) (map[string]string, error) {
		value, err := w.db.read(ctx)
		return map[string]string{keys[0]: value}, err
	}
	reads := map[string]func(key string) (string, error){
		"Fetch": func(key string) (string, error) { return cache.Fetch(t.Context(), c, key, w.db.read, nil) },
		"FetchMany": func(key string) (string, error) {
			found, err := cache.FetchMany(t.Context(), c, []string{key}, many, nil)
			return found[key], err
		},
		"Get": func(key string) (string, error) { return cache.Get[string](t.Context(), c, key) },
	}
	wantOld := func(what string, read func(string) (string, error), key string, l1 uint64) {
		t.Helper()
		before := c.Statistics()
		got, err := read(key)
		after := c.Statistics()
		if got != "old" || err != nil || after.L1Hits-before.L1Hits != l1 || after.L2Hits-before.L2Hits != 1-l1 {
			t.Errorf("%s: got %q, %v, %d from memory, want %d", what, got, err, after.L1Hits-before.L1Hits, l1)
		}
	}
	type kept struct {
		key  string
		read func(string) (string, error)
	}
	var near, far []kept
	for name, read := range reads {
		for end, expire := range map[string]func(key string) error{
			"none": func(key string) error { return w.client.Persist(t.Context(), key).Err() },
			"far":  func(key string) error { return nil },
			"near": func(key string) error { return w.client.PExpire(t.Context(), key, 3*time.Second).Err() },
			"by Expire": func(key string) error {
				wantOld(name+" before Expire", read, key, 0)
				done, err := c.Expire(t.Context(), key, 3*time.Second)
				if !done {
					t.Errorf("%s: Expire did nothing", name)
				}
				return err
			},
		} {
			key := name + " " + end
			wantFetch(t, key, writer, key, w.db.read, nil, "old", cache.FromLoader)
			testenv.Must(t, expire(key))
			wantOld(key, read, key, 0)
			wantOld(key, read, key, 1)
			if end == "none" || end == "far" {
				far = append(far, kept{key, read})
			} else {
				near = append(near, kept{key, read})
			}
		}
	}
	w.db.set("new")
	for _, k := range near {
		testenv.Eventually(t, k.key+" to end", func() bool {
			got, err := k.read(k.key)
			return got == "new" || errors.Is(err, cache.ErrMiss)
		})
	}
	for _, k := range far {
		wantOld(k.key, k.read, k.key, 1)
	}
}

// If the server does not return the TTL of a bare value, L1 keeps only values that this process has
// stored.
func TestPlainMemoryWithoutPTTL(t *testing.T) {
	t.Parallel()
	r := testenv.OwnRedis(t)
	w := worldAt(t, r.URL())
	testenv.Must(t, w.client.Do(t.Context(), "acl", "setuser", "reader", "on", ">secret", "~*", "&*", "+@all", "-pttl").Err())
	channel := "c:" + t.Name()
	w.beat(channel, "e")
	c := w.cache(cache.Config{Redis: testenv.Client(t, "redis://reader:secret@"+r.Addr()+"/0"), Plain: true, Memory: memoryOf(channel)})
	open(t, c)
	wantFetch(t, "own", c, "own", w.db.read, nil, "old", cache.FromLoader)
	wantFetch(t, "own", c, "own", w.db.read, nil, "old", cache.FromMemory)
	testenv.Must(t, w.client.Set(t.Context(), "k", `"old"`, time.Hour).Err())
	for range 3 {
		wantFetch(t, "another's", c, "k", w.db.read, nil, "old", cache.FromRedis)
	}
	testenv.Must(t, c.Healthy())
}

// A nil of an interface type is a value like any other, for callers of every such type; one of
// another type asks Redis.
func TestNilInMemory(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.cache(cache.Config{Memory: cache.Memory{Size: 10, Channel: "c:" + t.Name(), MaxStaleness: time.Minute}})
	open(t, c)
	for _, from := range []cache.Source{cache.FromLoader, cache.FromMemory} {
		got, err := cache.FetchResult(t.Context(), c, "k", func(context.Context) (any, error) { return nil, nil }, nil)
		if err != nil || got.Value != nil || got.Source != from {
			t.Errorf("got %+v, %v, wanted it from %v", got, err, from)
		}
	}
	other, err := cache.FetchResult(t.Context(), c, "k", func(context.Context) (fmt.Stringer, error) { return time.Second, nil }, nil)
	if err != nil || other.Value != nil || other.Source != cache.FromMemory {
		t.Errorf("another interface: got %+v, %v", other, err)
	}
	number, err := cache.FetchResult(t.Context(), c, "k", func(context.Context) (int, error) { return 5, nil }, nil)
	if err != nil || number.Value != 0 || number.Source != cache.FromRedis {
		t.Errorf("a number: got %+v, %v", number, err)
	}
}

// Clear keeps out of memory what was asked for before. Redis takes it all the same, since nothing
// was missed.
func TestClearDuringLoads(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	at := stopAt("read")
	c := w.cache(cache.Config{Memory: cache.Memory{Size: 10, Channel: "c:" + t.Name(), MaxStaleness: time.Minute}, Hooks: cache.Hooks{Redis: at.hook}})
	open(t, c)
	lease, err := c.Lease(t.Context(), "set", nil)
	testenv.Must(t, err)
	p := w.db.paused()
	loading := fetchBeside(t, c, "loaded", p.load, nil)
	<-p.read
	c.Clear()
	testenv.Must(t, cache.Set(t.Context(), lease, "old"))
	close(p.release)
	wantAnswer(t, "the load", loading, "old")
	at.armed.Store(true)
	reading := fetchBeside(t, c, "set", w.db.read, nil)
	<-at.reached
	c.Clear()
	close(at.goOn)
	wantAnswer(t, "the read", reading, "old")
	for _, key := range []string{"set", "loaded"} {
		wantFetch(t, key, c, key, w.db.read, nil, "old", cache.FromRedis)
		wantFetch(t, key+" again", c, key, w.db.read, nil, "old", cache.FromMemory)
	}
	if s := c.Statistics(); s.Refused != 0 || s.Sets != 2 {
		t.Errorf("%+v", s)
	}
}
