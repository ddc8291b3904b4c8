package cache_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/unstale/unstale/cache"
	"github.com/unstale/unstale/cache/cachetest"
	"github.com/unstale/unstale/internal/testenv"
)

// age moves the times of the entry of a key back. The entry then looks as old as after its TTL.
func (w *world) age(key string, by time.Duration) {
	w.Helper()
	e := w.entry(key)
	for _, name := range []string{"e", "s", "o"} {
		if at, ok := e[name].(float64); ok {
			e[name] = int64(at) - by.Milliseconds()
		}
	}
	w.setEntry(key, e)
}

// An expired value is returned immediately, while exactly one load gets the new one.
func TestStaleWhileRevalidate(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c, other := w.cache(cache.Config{}), w.cache(cache.Config{})
	policy := cache.MustPolicy(cache.Options{TTL: time.Minute, Stale: time.Hour})
	wantFetch(t, "first", c, "k", w.db.read, policy, "old", cache.FromLoader)
	w.age("k", 2*time.Minute)
	w.db.set("new")
	w.db.reads.Store(0)
	p := w.db.paused()
	for range 20 {
		for _, client := range []*cache.Cache{c, other} {
			got, err := cache.FetchResult(t.Context(), client, "k", p.load, policy)
			if err != nil || got.Value != "old" || !got.Stale || got.Source != cache.FromRedis {
				t.Fatalf("%+v, %v", got, err)
			}
		}
	}
	<-p.read
	close(p.release)
	testenv.Eventually(t, "the new value", func() bool {
		got, err := cache.FetchResult(t.Context(), c, "k", p.load, policy)
		return err == nil && got.Value == "new" && !got.Stale
	})
	if n := w.db.reads.Load(); n != 1 {
		t.Errorf("%d loads", n)
	}
	// Both refreshes have ended: they would refresh the aged value.
	testenv.Must(t, other.Close())
	testenv.Must(t, c.Close())
	w.age("k", 3*time.Hour)
	wantFetch(t, "after the stale time", w.cache(cache.Config{}), "k", w.db.read, policy, "new", cache.FromLoader)
}

// A refresh that is under way when the row changes stores nothing old.
func TestRefreshIsRaced(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.cache(cache.Config{})
	policy := cache.MustPolicy(cache.Options{TTL: time.Minute, Stale: time.Hour})
	wantFetch(t, "first", c, "k", w.db.read, policy, "old", cache.FromLoader)
	w.age("k", 2*time.Minute)
	p := w.db.paused()
	wantFetch(t, "stale", c, "k", p.load, policy, "old", cache.FromRedis)
	<-p.read
	w.commit("new", "k")
	late := fetchBeside(t, c, "k", w.db.read, policy)
	testenv.Eventually(t, "the late caller to wait", func() bool { return c.Statistics().Misses == 2 })
	close(p.release)
	wantAnswer(t, "the caller from after", late, "new")
	wantFetch(t, "then", c, "k", w.db.read, policy, "new", cache.FromRedis)
}

// A loader that fails is bridged for a bounded time.
func TestStaleOnError(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c, impatient := w.cache(cache.Config{LoadPause: -1}), w.cache(cache.Config{SoftTimeout: 20 * time.Millisecond})
	policy := cache.MustPolicy(cache.Options{TTL: time.Minute, Stale: -1, StaleOnError: time.Hour})
	wantFetch(t, "first", c, "k", w.db.read, policy, "old", cache.FromLoader)
	w.age("k", 2*time.Minute)
	broken := errors.New("the database is away")
	fail := func(context.Context) (string, error) { return "", broken }
	got, err := cache.FetchResult(t.Context(), c, "k", fail, policy)
	if err != nil || got.Value != "old" || !got.Stale {
		t.Errorf("%+v, %v", got, err)
	}
	p := w.db.paused()
	got, err = cache.FetchResult(t.Context(), impatient, "k", p.load, policy)
	if err != nil || got.Value != "old" || !got.Stale {
		t.Errorf("after the soft timeout: %+v, %v", got, err)
	}
	// A row that is gone is not a failure.
	close(p.release)
	testenv.Eventually(t, "the load to end", func() bool { return impatient.Statistics().Sets == 1 })
	w.age("k", 2*time.Minute)
	_, err = cache.Fetch(t.Context(), c, "k", func(context.Context) (string, error) { return "", cache.ErrNotFound }, policy)
	wantError(t, "not found", err, cache.ErrNotFound)
	testenv.Must(t, c.Delete(t.Context(), "k"))
	wantFetch(t, "again", c, "k", w.db.read, policy, "old", cache.FromLoader)
	w.age("k", 3*time.Hour)
	_, err = cache.Fetch(t.Context(), c, "k", fail, policy)
	wantError(t, "after the bound", err, broken)
}

// Callers that join a failing load get the old value too, and begin no other load: an expired value
// that Redis still holds is not invalidated.
func TestStaleOnErrorOfAnOlderLoad(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := cachetest.NewStore(t)
		c, loads := store.Cache(cache.Config{}), 0
		policy := cache.MustPolicy(cache.Options{TTL: time.Minute, Stale: -1, StaleOnError: time.Hour})
		wantFetch(t, "first", c, "k", (&database{value: "old"}).read, policy, "old", cache.FromLoader)
		store.Advance(2 * time.Minute)
		begun, release := make(chan struct{}), make(chan struct{})
		fail := func(context.Context) (string, error) {
			loads++
			close(begun)
			<-release
			return "", errors.New("the database is away")
		}
		first := fetchBeside(t, c, "k", fail, policy)
		<-begun
		second := fetchBeside(t, c, "k", fail, policy)
		synctest.Wait()
		close(release)
		wantAnswer(t, "first", first, "old")
		wantAnswer(t, "second", second, "old")
		if loads != 1 {
			t.Errorf("%d loads, wanted 1", loads)
		}
	})
}

// With EarlyRefresh the value is replaced before it expires.
func TestEarlyRefresh(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.cache(cache.Config{})
	policy := cache.MustPolicy(cache.Options{TTL: time.Minute, EarlyRefresh: 1})
	wantFetch(t, "first", c, "k", w.db.read, policy, "old", cache.FromLoader)
	e := w.entry("k")
	e["d"] = time.Hour.Milliseconds() // a load of an hour begins in time for nearly all callers
	w.setEntry("k", e)
	w.db.set("new")
	testenv.Eventually(t, "a new value", func() bool {
		got, err := cache.FetchResult(t.Context(), c, "k", w.db.read, policy)
		return err == nil && got.Value == "new" && !got.Stale
	})
}

// The probability of an early refresh follows XFetch: exp(-left / (beta * duration of the load)),
// for Fetch and FetchMany.
func TestEarlyRefreshIsTheFormulas(t *testing.T) {
	t.Parallel()
	const calls, took = 1000, 5 * time.Second
	for _, beta := range []float64{0.5, 1, 2} {
		for _, left := range []time.Duration{time.Second, 5 * time.Second, 15 * time.Second} {
			synctest.Test(t, func(t *testing.T) {
				store := cachetest.NewStore(t)
				c := store.Cache(cache.Config{Loads: calls})
				c.Seed(44)
				policy := cache.MustPolicy(cache.Options{TTL: time.Hour, Jitter: 1e-9, EarlyRefresh: beta})
				var loaded atomic.Int64 // keys
				load := func(_ context.Context, keys []string) (map[string]string, error) {
					loaded.Add(int64(len(keys)))
					time.Sleep(took) // by the bubble's clock, as below
					return allOf(keys), nil
				}
				keys := make([]string, calls)
				for i := range keys {
					keys[i] = fmt.Sprint(i)
				}
				all := func() {
					_, err := cache.FetchMany(t.Context(), c, keys, load, policy)
					testenv.Must(t, err)
				}
				for i, fetch := range []func(){all, func() {
					for _, key := range keys {
						_, err := cache.Fetch(t.Context(), c, key, func(ctx context.Context) (string, error) {
							_, err := load(ctx, []string{key})
							return key, err
						}, policy)
						testenv.Must(t, err)
					}
				}} {
					all()
					store.Advance(time.Hour - left)
					loaded.Store(0)
					fetch()
					synctest.Wait()
					want := math.Exp(-left.Seconds() / (beta * took.Seconds()))
					if got, tolerance := float64(loaded.Load())/calls, 4*math.Sqrt(want*(1-want)/calls)+0.001; math.Abs(got-want) > tolerance {
						t.Errorf("%s, %v left, beta %v: a probability of %v, want %v +-%v", [...]string{"FetchMany", "Fetch"}[i], left, beta, got, want, tolerance)
					}
					time.Sleep(2 * time.Hour)
				}
			})
		}
	}
}

// A value that this process has loaded, and returns from L1, is refreshed before it expires, too.
func TestEarlyRefreshInMemory(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	channel := "c:" + t.Name()
	memory := memoryOf(channel)
	memory.TTL = time.Hour
	c := w.cache(cache.Config{Memory: memory})
	w.beat(channel, "e")
	open(t, c)
	// nearly each call is early enough for a load of 10 ms
	policy := cache.MustPolicy(cache.Options{TTL: time.Hour, EarlyRefresh: 1e9})
	load := func(ctx context.Context) (string, error) {
		time.Sleep(10 * time.Millisecond)
		return w.db.read(ctx)
	}
	many := func(ctx context.Context, keys []string) (map[string]string, error) {
		value, err := load(ctx)
		return map[string]string{keys[0]: value}, err
	}
	for name, fetch := range map[string]func() (string, error){
		"Fetch": func() (string, error) { return cache.Fetch(t.Context(), c, "Fetch", load, policy) },
		"FetchMany": func() (string, error) {
			got, err := cache.FetchMany(t.Context(), c, []string{"FetchMany"}, many, policy)
			return got["FetchMany"], err
		},
	} {
		w.db.set("old")
		got, err := fetch()
		if err != nil || got != "old" {
			t.Fatalf("%s: got %q, %v", name, got, err)
		}
		w.db.set("new")
		testenv.Eventually(t, name+": a new value", func() bool {
			got, err := fetch()
			testenv.Must(t, err)
			return got == "new"
		})
	}
}

// A sliding value lives on while it is read, and has a hard end.
func TestSliding(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c, other := w.cache(cache.Config{}), w.cache(cache.Config{})
	policy := cache.Sliding(time.Minute, time.Hour)
	wantFetch(t, "first", c, "k", w.db.read, policy, "old", cache.FromLoader)
	testenv.Must(t, w.client.PExpire(t.Context(), "k", 10*time.Second).Err())
	wantFetch(t, "read", other, "k", w.db.read, policy, "old", cache.FromRedis)
	if ttl := w.client.PTTL(t.Context(), "k").Val(); ttl < 40*time.Second {
		t.Errorf("the entry lives for %v after it was read", ttl)
	}
	testenv.Must(t, w.client.PExpire(t.Context(), "k", 10*time.Second).Err())
	wantFetch(t, "read again", other, "k", w.db.read, policy, "old", cache.FromRedis)
	if ttl := w.client.PTTL(t.Context(), "k").Val(); ttl > 10*time.Second {
		t.Errorf("prolonged twice within a quarter of its time: %v", ttl)
	}
	w.age("k", 2*time.Hour)
	wantFetch(t, "after its hard end", c, "k", w.db.read, policy, "old", cache.FromLoader)
}

// A read extends a sliding value by its own time and up to its own end, with any policy of the
// reader, and leaves the time of other values unchanged.
func TestSlidingByItsOwnTime(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	hour, minute := time.Hour.Milliseconds(), time.Minute.Milliseconds()
	entry := func(more map[string]any) string {
		e := map[string]any{"e": time.Now().UnixMilli() + 10*hour, "v": "old"}
		maps.Copy(e, more)
		text, err := json.Marshal(e)
		testenv.Must(t, err)
		return string(text)
	}
	keeps, asked := 30*time.Minute, false
	for name, test := range map[string]struct {
		text string
		left time.Duration
	}{
		"its own time":    {entry(map[string]any{"i": 5 * hour}), 5 * time.Hour},
		"a shorter one":   {entry(map[string]any{"i": 10 * minute}), 10 * time.Minute},
		"its own end":     {entry(map[string]any{"i": 5 * hour, "e": time.Now().UnixMilli() + 3*hour}), 3 * time.Hour},
		"a huge time":     {entry(map[string]any{"i": int64(999_999_999_999_999_999)}), 10 * time.Hour},
		"not sliding":     {entry(nil), keeps},
		"negative":        {entry(map[string]any{"i": 5 * hour, "n": 1, "v": nil}), keeps},
		"another format":  {entry(map[string]any{"i": 5 * hour, "f": 3}), keeps},
		"another codec":   {entry(map[string]any{"i": 5 * hour, "c": "other"}), keeps},
		"another's tag":   {entry(map[string]any{"i": 5 * hour, "t": map[string]string{"t": "gone"}}), keeps},
		"another key":     {`"text of somebody else"`, keeps},
		"another's entry": {`{"until":"noon"}`, keeps},
	} {
		for policyName, p := range map[string]*cache.Policy{"sliding": cache.Sliding(time.Minute, time.Hour), "static": cache.Static} {
			key := name + " " + policyName
			load := func(ctx context.Context) (string, error) {
				cache.FillFrom(ctx).Skip()
				return w.db.read(ctx)
			}
			many := func(ctx context.Context, _ []string) (map[string]string, error) {
				cache.FillFrom(ctx).Skip()
				return nil, nil
			}
			for readName, read := range map[string]func(c *cache.Cache){
				"Fetch":     func(c *cache.Cache) { _, _ = cache.Fetch(t.Context(), c, key, load, p) },
				"FetchMany": func(c *cache.Cache) { _, _ = cache.FetchMany(t.Context(), c, []string{"none", key}, many, p) },
				"Get":       func(c *cache.Cache) { _, _ = cache.Get[string](t.Context(), c, key) },
			} {
				for range 2 {
					c := w.cache(cache.Config{Policy: p})
					if asked { // otherwise the read also asks for the time
						_, _ = c.Has(t.Context(), "none")
					}
					asked = !asked
					testenv.Must(t, w.client.Set(t.Context(), key, test.text, keeps).Err())
					read(c)
					left := w.client.PTTL(t.Context(), key).Val()
					if left > test.left || left < test.left-time.Minute {
						t.Errorf("%s by %s: %v are left, want %v", key, readName, left, test.left)
					}
				}
			}
		}
	}
}

// A TTL that a loader, a negative result or Expire has set is kept, even if the policy slides.
func TestSlidingKeepsOtherTimes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := cache.MustPolicy(cache.Options{TTL: time.Minute, Sliding: true, SlidingMax: 24 * time.Hour, NegativeTTL: time.Hour})
	none := func(context.Context) (string, error) { return "", cache.ErrNotFound }
	short := func(ctx context.Context) (string, error) {
		cache.FillFrom(ctx).TTL(10 * time.Second)
		return w.db.read(ctx)
	}
	c, other := w.cache(cache.Config{Policy: p}), w.cache(cache.Config{})
	wantFetch(t, "load", c, "short", short, p, "old", cache.FromLoader)
	wantFetch(t, "load", c, "expire", w.db.read, p, "old", cache.FromLoader)
	done, err := c.Expire(t.Context(), "expire", time.Hour)
	if !done || err != nil {
		t.Errorf("Expire: %v, %v", done, err)
	}
	for _, reader := range []*cache.Cache{c, c, other} { // the first one has loaded
		_, err := cache.Fetch(t.Context(), reader, "none", none, p)
		wantError(t, "none", err, cache.ErrNotFound)
		wantFetch(t, "read", reader, "short", short, p, "old", cache.FromRedis)
		wantFetch(t, "read", reader, "expire", w.db.read, p, "old", cache.FromRedis)
	}
	for key, want := range map[string]time.Duration{"none": time.Hour, "short": 10 * time.Second, "expire": time.Hour} {
		if left := w.client.PTTL(t.Context(), key).Val(); left < want/2 || left > want*5/4 {
			t.Errorf("%s: %v are left, want about %v", key, left, want)
		}
	}
}

// The reader gets a value that is stored between its read of a sliding value and the extension.
func TestSlidingMeetsAnother(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := cache.Sliding(time.Minute, time.Hour)
	for name, test := range map[string]struct {
		between func(key string)
		value   string
		from    cache.Source
	}{
		"nothing":         {func(string) {}, "old", cache.FromRedis},
		"another value":   {func(key string) { w.setEntry(key, map[string]any{"e": 9999999999999, "v": "other"}) }, "other", cache.FromRedis},
		"an invalidation": {func(key string) { w.commit("new", key) }, "new", cache.FromLoader},
		"another format":  {func(key string) { w.setEntry(key, map[string]any{"e": 9999999999999, "v": "x", "f": 3}) }, "new", cache.FromLoader},
		"a tag's end": {func(key string) {
			w.setEntry(key, map[string]any{"e": 9999999999999, "v": "x", "t": map[string]string{"t": "gone"}})
		}, "new", cache.FromLoader},
		"a list": {func(key string) {
			testenv.Must(t, w.client.Del(t.Context(), key).Err())
			testenv.Must(t, w.client.RPush(t.Context(), key, "x").Err())
		}, "new", cache.FromLoader},
	} {
		w.db.set("old")
		w.unlink("k")
		wantFetch(t, name, w.cache(cache.Config{}), "k", w.db.read, p, "old", cache.FromLoader)
		w.db.set("new")
		slides := 0
		c := w.cache(cache.Config{Hooks: cache.Hooks{Redis: func(ctx context.Context, verb string) (context.Context, func(error)) {
			if verb == "slide" {
				slides++
				test.between("k")
			}
			return ctx, nil
		}}})
		wantFetch(t, name, c, "k", w.db.read, p, test.value, test.from)
		if slides != 1 {
			t.Errorf("%s: %d were sent", name, slides)
		}
	}
}

// A refresh without a lease does not load: all callers have an answer, and the result could not be
// stored.
func TestRefreshWithoutALease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, db := cachetest.NewStore(t), &database{value: "old"}
		c := store.Cache(cache.Config{})
		policy := cache.MustPolicy(cache.Options{TTL: time.Minute, Stale: time.Hour})
		wantFetch(t, "first", c, "k", db.read, policy, "old", cache.FromLoader)
		store.Advance(2 * time.Minute)
		held := store.Cache(cache.Config{}) // the tombstone is a key like any other
		wantFetch(t, "tombstone", held, "lock:hold:{k}", (&database{value: "held"}).read, nil, "held", cache.FromLoader)
		for range 5 {
			wantFetch(t, "while it is held", c, "k", db.read, policy, "old", cache.FromRedis)
			synctest.Wait()
		}
		if n := db.reads.Load(); n != 1 {
			t.Errorf("%d loads", n)
		}
		testenv.Must(t, held.Delete(t.Context(), "lock:hold:{k}"))
		wantFetch(t, "then", c, "k", db.read, policy, "old", cache.FromRedis)
		synctest.Wait()
		if n := db.reads.Load(); n != 2 {
			t.Errorf("%d loads in the end", n)
		}
	})
}
