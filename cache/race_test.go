package cache_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/unstale/unstale/cache"
	"github.com/unstale/unstale/cache/cachetest"
	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/protocol"
)

// A raced is one row of the race table: the events between the read of the old row by a loader and
// its return.
type raced struct {
	name    string
	key     string
	policy  *cache.Policy
	between func(w *world)
}

// A load that read before the commit is paused; the row changes, and its key is invalidated in one
// of the possible ways. Then the load continues. No old value is stored, in Redis or elsewhere, and
// callers that come after the invalidation get the new row, in the same process and in another.
func TestRaces(t *testing.T) {
	t.Parallel()
	slow := cache.MustPolicy(cache.Options{TTL: time.Hour, StaleOnError: time.Hour})
	for _, c := range []raced{
		{name: "key", key: "k", policy: slow, between: func(w *world) { w.commit("new", "k") }},
		{name: "key with a hash tag", key: "user:{1}:cart", policy: slow, between: func(w *world) { w.commit("new", "user:{1}:cart") }},
		{name: "key, twice", key: "k", policy: slow, between: func(w *world) { w.commit("other", "k"); w.commit("new", "k") }},
		{name: "tag", key: "k", policy: slow.Tagged("t", "u"), between: func(w *world) { w.commit("new", protocol.StampKey("t")) }},
		{name: "pattern", key: "shop:list:1", policy: slow, between: func(w *world) {
			w.db.set("new")
			_, err := w.worker.Sweeper.Sweep(w.Context(), []string{"shop:list:*"}, nil)
			testenv.Must(w, err)
		}},
		{name: "set", key: "k", policy: slow, between: func(w *world) {
			w.client.SAdd(w.Context(), "set:t", "k", "other")
			w.db.set("new")
			_, err := w.worker.Sets.TakeSet(w.Context(), "set:t", 1, func([]string) error { return nil })
			testenv.Must(w, err)
		}},
		{name: "tombstone", key: "k", policy: slow, between: func(w *world) {
			w.db.set("new")
			testenv.Must(w, w.client.Set(w.Context(), "lock:hold:{k}", "h", time.Minute).Err())
			w.unlink("k")
		}},
		{name: "hold", key: "k", policy: slow, between: func(w *world) {
			w.db.set("new")
			_, err := w.worker.Unlinker.Unlink(w.Context(), []keyspace.Target{{Key: "k", Hold: 50 * time.Millisecond}})
			testenv.Must(w, err)
		}},
		{name: "lease expired", key: "k", policy: slow, between: func(w *world) {
			testenv.Must(w, w.client.Del(w.Context(), "lock:fill:{k}").Err())
			w.db.set("new")
		}},
		{name: "lease expired and another's", key: "k", policy: slow, between: func(w *world) {
			testenv.Must(w, w.client.Set(w.Context(), "lock:fill:{k}", "somebody:1", 20*time.Millisecond).Err())
			w.db.set("new")
		}},
		{name: "Redis is empty", key: "k", policy: slow, between: func(w *world) {
			testenv.Must(w, w.client.FlushDB(w.Context()).Err())
			w.db.set("new")
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.run(t)
		})
	}
}

func (c raced) run(t *testing.T) {
	w := newWorld(t)
	same, other := w.cache(cache.Config{}), w.cache(cache.Config{})
	p := w.db.paused()
	early := fetchBeside(t, same, c.key, p.load, c.policy)
	<-p.read
	// before the invalidation: it may have either
	joined := fetchBeside(t, same, c.key, p.load, c.policy)
	testenv.Eventually(t, "the second caller to wait", func() bool { return same.Statistics().Misses == 2 })
	c.between(w)
	w.db.reads.Store(0)
	late := fetchBeside(t, same, c.key, w.db.read, c.policy)
	testenv.Eventually(t, "the late caller to wait or to have loaded", func() bool { return same.Statistics().Misses >= 3 })
	elsewhere := fetchBeside(t, other, c.key, w.db.read, c.policy)
	testenv.Eventually(t, "a caller in another process", func() bool { return other.Statistics().Misses >= 1 })
	close(p.release)
	wantAnswer(t, "a caller in another process", elsewhere, "new")
	wantAnswer(t, "the caller from before", early, "old")
	<-joined
	wantAnswer(t, "the caller from after", late, "new")
	for _, client := range []*cache.Cache{same, other} {
		value, err := cache.Fetch(t.Context(), client, c.key, w.db.read, c.policy)
		if err != nil || value != "new" {
			t.Errorf("afterwards: %q, %v", value, err)
		}
	}
	if text := w.stored(c.key); strings.Contains(text, "old") {
		t.Errorf("Redis holds %s", text)
	}
}

// A caller that came before the invalidation and waits for a load that lost its lease gets what a
// new load brings.
func TestJoinersLoadAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.cache(cache.Config{})
	p := w.db.paused()
	first := fetchBeside(t, c, "k", p.load, nil)
	<-p.read
	var joined []<-chan answer
	for range 10 {
		joined = append(joined, fetchBeside(t, c, "k", w.db.read, nil))
	}
	testenv.Eventually(t, "all to wait", func() bool { return c.Statistics().Misses == 11 })
	w.commit("new", "k")
	close(p.release)
	wantAnswer(t, "the first", first, "old")
	for _, answers := range joined {
		wantAnswer(t, "one who joined", answers, "new")
	}
}

// No caller joins a load whose fill is on its way: an invalidation behind it would not be detected.
func TestNobodyJoinsAFill(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	filled, goOn := make(chan struct{}), make(chan struct{})
	hold := true
	c := w.cache(cache.Config{Hooks: cache.Hooks{Redis: func(ctx context.Context, verb string) (context.Context, func(error)) {
		return ctx, func(error) {
			if verb == "fill" && hold {
				hold = false
				close(filled)
				<-goOn
			}
		}
	}}})
	first := fetchBeside(t, c, "k", w.db.read, nil)
	<-filled // Redis has taken the old value, and the load is not over yet
	w.commit("new", "k")
	late := fetchBeside(t, c, "k", w.db.read, nil)
	wantAnswer(t, "the caller from after", late, "new")
	close(goOn)
	wantAnswer(t, "the first", first, "old")
	wantFetch(t, "afterwards", c, "k", w.db.read, nil, "new", cache.FromRedis)
}

// A load that ends with a value that another process has stored meanwhile does not answer callers
// that joined after that was read.
func TestNobodyJoinsAHit(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	other := w.cache(cache.Config{})
	stop := stopAt("lease")
	stop.before = func() { wantFetch(t, "elsewhere", other, "k", w.db.read, nil, "old", cache.FromLoader) }
	stop.armed.Store(true)
	c := w.cache(cache.Config{Hooks: cache.Hooks{Redis: stop.hook}})
	first := fetchBeside(t, c, "k", w.db.read, nil)
	<-stop.reached // Redis has answered with the old value
	w.commit("new", "k")
	late := fetchBeside(t, c, "k", w.db.read, nil)
	testenv.Eventually(t, "the late caller to wait", func() bool { return c.Statistics().Misses == 2 })
	close(stop.goOn)
	wantAnswer(t, "the first", first, "old")
	wantAnswer(t, "the caller from after", late, "new")
}

// slowCodec is JSON that waits before it writes.
type slowCodec struct {
	cache.Codec
	begun, goOn chan struct{}
}

func (slowCodec) Name() string { return "slow" }

func (c slowCodec) Marshal(v any) ([]byte, error) {
	c.begun <- struct{}{}
	<-c.goOn
	return c.Codec.Marshal(v)
}

// A tag may be invalidated when the load has ended and callers still join: its version is read
// again after the last of them.
func TestTagGoesAfterTheLoad(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	codec := slowCodec{cache.JSON, make(chan struct{}, 10), make(chan struct{})}
	c := w.cache(cache.Config{Codec: codec})
	policy := cache.Moderate.Tagged("t")
	first := fetchBeside(t, c, "k", w.db.read, policy)
	<-codec.begun
	w.commit("new", protocol.StampKey("t"))
	late := fetchBeside(t, c, "k", w.db.read, policy)
	testenv.Eventually(t, "the late caller to wait", func() bool { return c.Statistics().Misses == 2 })
	close(codec.goOn)
	wantAnswer(t, "the first", first, "old")
	wantAnswer(t, "the caller from after", late, "new")
}

// A tag that only the loader knows: the first value of it is not stored, since the tag may have
// changed during the load.
func TestTagOfTheLoader(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c, other := w.cache(cache.Config{}), w.cache(cache.Config{})
	load := func(ctx context.Context) (string, error) {
		cache.FillFrom(ctx).Tag("author:7")
		return w.db.read(ctx)
	}
	wantFetch(t, "first", c, "k", load, nil, "old", cache.FromLoader)
	if w.stored("k") != "" {
		t.Error("a value was stored whose tag had no stamp before the load")
	}
	wantFetch(t, "second", c, "k", load, nil, "old", cache.FromLoader)
	wantFetch(t, "third", c, "k", load, nil, "old", cache.FromRedis)
	wantFetch(t, "elsewhere", other, "k", load, nil, "old", cache.FromRedis)

	// The tag changes between the read of the row and the read of its version.
	w.commit("older", "k")
	p := w.db.paused()
	early := fetchBeside(t, c, "k", func(ctx context.Context) (string, error) {
		cache.FillFrom(ctx).Tag("author:7")
		return p.load(ctx)
	}, nil)
	<-p.read
	w.commit("new", protocol.StampKey("author:7"))
	close(p.release)
	wantAnswer(t, "the caller from before", early, "older")
	wantFetch(t, "afterwards", c, "k", load, nil, "new", cache.FromLoader)
	wantFetch(t, "afterwards", other, "k", load, nil, "new", cache.FromRedis)
}

// An invalidated value is never served again as a stale value, neither immediately nor when the
// loader fails.
func TestInvalidatedIsNeverStale(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.cache(cache.Config{})
	policy := cache.MustPolicy(cache.Options{TTL: 5 * time.Millisecond, Stale: time.Hour, StaleOnError: time.Hour, Tags: []string{"t"}})
	for i, name := range []string{"key", "tag"} {
		key := fmt.Sprint("k", i)
		wantFetch(t, name, c, key, w.db.read, policy, "old", cache.FromLoader)
		w.unlink(map[string]string{"key": key, "tag": protocol.StampKey("t")}[name])
		_, err := cache.Fetch(t.Context(), c, key, func(context.Context) (string, error) { return "", context.DeadlineExceeded }, policy)
		wantError(t, name, err, context.DeadlineExceeded)
	}
}

// A load that fails while the key is invalidated serves no stale value either, although it was
// found before.
func TestInvalidatedDuringAFailingLoad(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.cache(cache.Config{LoadPause: -1})
	policy := cache.MustPolicy(cache.Options{TTL: time.Millisecond, Stale: -1, StaleOnError: time.Hour})
	wantFetch(t, "first", c, "k", w.db.read, policy, "old", cache.FromLoader)
	fail := func(invalidate bool) cache.Loader[string] {
		return func(context.Context) (string, error) {
			if invalidate {
				w.unlink("k")
			}
			return "", context.DeadlineExceeded
		}
	}
	testenv.Eventually(t, "the value to expire", func() bool {
		got, err := cache.FetchResult(t.Context(), c, "k", fail(false), policy)
		return err == nil && got.Stale && got.Value == "old"
	})
	_, err := cache.Fetch(t.Context(), c, "k", fail(true), policy)
	wantError(t, "Fetch", err, context.DeadlineExceeded)
}

// Delete and DeleteTag do the same as the worker for this process.
func TestDelete(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.cache(cache.Config{Prefix: "p:"})
	for name, invalidate := range map[string]func() error{
		"key": func() error { return c.Delete(t.Context(), "k") },
		"tag": func() error { return c.DeleteTag(t.Context(), "t") },
	} {
		w.db.set("old")
		testenv.Must(t, c.Delete(t.Context(), "k"))
		policy := cache.Moderate.Tagged("t")
		p := w.db.paused()
		early := fetchBeside(t, c, "k", p.load, policy)
		<-p.read
		w.db.set("new")
		testenv.Must(t, invalidate())
		close(p.release)
		wantAnswer(t, name, early, "old")
		wantFetch(t, name, c, "k", w.db.read, policy, "new", cache.FromLoader)
		w.db.set("newer")
		testenv.Must(t, invalidate())
		wantFetch(t, name, c, "k", w.db.read, policy, "newer", cache.FromLoader)
	}
}

// An error may be about the old row, like a value: it does not answer callers that came after the
// load had begun. They share the next load, and its error if it fails too. For any number of
// callers, one load runs at a time.
func TestOldErrorsAnswerNobodyWhoComesLater(t *testing.T) {
	t.Parallel()
	discontinued := errors.New("the product is discontinued")
	for name, fail := range map[string]func() error{
		"error":  func() error { return discontinued },
		"panic":  func() error { panic("there is no price") },
		"Goexit": func() error { runtime.Goexit(); return nil },
	} {
		for _, cured := range []bool{true, false} {
			t.Run(fmt.Sprint(name, " ", cured), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					store := cachetest.NewStore(t)
					c, p := store.Cache(cache.Config{}), (&database{value: "old"}).paused()
					load := func(ctx context.Context) (string, error) {
						value, _ := p.load(ctx)
						if value == "old" {
							return "", fail()
						}
						return value, nil
					}
					first := fetchBeside(t, c, "k", load, nil)
					<-p.read
					if cured {
						p.db.set("new")
						store.Invalidate("k")
					}
					others := make([]<-chan answer, 20)
					for i := range others {
						others[i] = fetchBeside(t, c, "k", load, nil)
					}
					synctest.Wait() // until they wait for the first
					close(p.release)
					if got := <-first; got.err == nil {
						t.Errorf("the first got %q", got.value)
					}
					for i, other := range others {
						if got := <-other; (got.err == nil) != cured || got.err == nil && got.value != "new" {
							t.Errorf("caller %d got %q, %v", i, got.value, got.err)
						}
					}
					if n := p.db.reads.Load(); n != 2 {
						t.Errorf("%d loads, wanted 2", n)
					}
				})
			})
		}
	}
}

// A load that hangs says nothing about a row: all that wait are told at its hard timeout, and none
// waits for another.
func TestHangingLoadAnswersAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, p := cachetest.New(t), (&database{value: "old"}).paused()
		first := fetchBeside(t, c, "k", p.load, nil)
		<-p.read
		second := fetchBeside(t, c, "k", p.load, nil)
		wantError(t, "the first", (<-first).err, cache.ErrLoadTimeout)
		wantError(t, "the second", (<-second).err, cache.ErrLoadTimeout)
		if n := p.db.reads.Load(); n != 1 {
			t.Errorf("%d loads, wanted 1", n)
		}
	})
}
