package cachetest_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/cache"
	"github.com/unstale/unstale/cache/cachetest"
	"github.com/unstale/unstale/cache/msgpack"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/protocol"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// A place is where a suite's caches keep their values.
type place struct {
	*testing.T
	cache      func(cache.Config) *cache.Cache
	invalidate func(keys ...string)
	// until lets d pass and checks that the condition then holds.
	until func(d time.Duration, what string, condition func() bool)
	row   atomic.Value // what the loader finds
	loads atomic.Int64
}

func (p *place) load(context.Context) (string, error) {
	p.loads.Add(1)
	if value, ok := p.row.Load().(string); ok {
		return value, nil
	}
	return "", cache.ErrNotFound
}

func (p *place) must(err error) {
	p.Helper()
	if err != nil {
		p.Fatal(err)
	}
}

func (p *place) wantErr(what string, err, want error) {
	p.Helper()
	if !errors.Is(err, want) {
		p.Errorf("%s: got %v, want %v", what, err, want)
	}
}

// want fetches a key and checks the value and its source.
func (p *place) want(c *cache.Cache, key string, policy *cache.Policy, value string, from cache.Source, stale bool) {
	p.Helper()
	got, err := cache.FetchResult(p.Context(), c, key, p.load, policy)
	if err != nil || got.Value != value || got.Source != from || got.Stale != stale {
		p.Errorf("%s: got %q from %v, stale %v, %v; want %q from %v, stale %v", key, got.Value, got.Source, got.Stale, err, value, from, stale)
	}
}

func (p *place) wantLoads(n int64) {
	p.Helper()
	if got := p.loads.Load(); got != n {
		p.Errorf("%d loads, want %d", got, n)
	}
}

func onStore(t *testing.T) *place {
	store := cachetest.NewStore(t)
	return &place{T: t, cache: store.Cache, invalidate: store.Invalidate, until: func(d time.Duration, what string, condition func() bool) {
		t.Helper()
		store.Advance(d)
		testenv.Eventually(t, what, condition) // what the Cache does in the background
	}}
}

func onRedis(t *testing.T) *place {
	r := testenv.Redis(t)
	p := &place{T: t}
	p.cache = func(config cache.Config) *cache.Cache {
		t.Helper()
		o, err := redis.ParseURL(r.URL)
		p.must(err)
		o.ContextTimeoutEnabled = true
		client := redis.NewClient(o)
		config.Redis, config.Timeout = client, 5*time.Second
		c, err := cache.New(config)
		p.must(err)
		t.Cleanup(func() { _, _ = c.Close(), client.Close() })
		return c
	}
	p.invalidate = func(keys ...string) {
		t.Helper()
		for _, key := range keys {
			lease, _ := protocol.LeaseKey(key)
			p.must(r.Client.Unlink(t.Context(), lease, key).Err())
		}
	}
	p.until = func(_ time.Duration, what string, condition func() bool) {
		t.Helper()
		testenv.Eventually(t, what, condition)
	}
	return p
}

// brief is the TTL of values that have to expire: the clock of the Store is advanced past it, and
// the clock of Redis has to reach it.
const brief = 300 * time.Millisecond

// settled is a Checker of writes that are done.
type settled struct{}

func (settled) Settled(context.Context) (bool, time.Duration, error) { return true, time.Minute, nil }

// behaviors are the properties of a Cache over any store.
var behaviors = map[string]func(p *place){
	"fetch, get, has, delete, clear": func(p *place) {
		c := p.cache(cache.Config{Prefix: "shop:"})
		ctx := p.Context()
		_, err := cache.Get[string](ctx, c, "k")
		p.wantErr("Get of nothing", err, cache.ErrMiss)
		p.want(c, "k", nil, "old", cache.FromLoader, false)
		c.Clear()
		p.row.Store("new")
		p.want(c, "k", nil, "old", cache.FromRedis, false)
		got, err := cache.Get[string](ctx, c, "k")
		has, hasErr := c.Has(ctx, "k")
		if got != "old" || err != nil || !has || hasErr != nil {
			p.Errorf("%q, %v, %v, %v", got, err, has, hasErr)
		}
		p.must(c.Delete(ctx, "k"))
		if has, err = c.Has(ctx, "k"); has || err != nil {
			p.Errorf("%v, %v", has, err)
		}
		p.want(c, "k", nil, "new", cache.FromLoader, false)
		p.invalidate("shop:k")
		p.want(c, "k", nil, "new", cache.FromLoader, false)
		p.must(c.Healthy())
		if s := c.Statistics(); s.L2Hits != 2 || s.Misses != 4 || s.Sets != 3 || s.Loads != 3 || s.Invalidations != 1 || s.TotalRequests != 6 {
			p.Errorf("%+v", s)
		}
	},
	"negative results": func(p *place) {
		c := p.cache(cache.Config{})
		p.row = atomic.Value{}
		policy := cache.MustPolicy(cache.Options{TTL: time.Hour, NegativeTTL: brief})
		for range 3 {
			_, err := cache.Fetch(p.Context(), c, "k", p.load, policy)
			p.wantErr("Fetch", err, cache.ErrNotFound)
		}
		_, err := cache.Get[string](p.Context(), c, "k")
		p.wantErr("Get", err, cache.ErrNotFound)
		if has, err := c.Has(p.Context(), "k"); has || err != nil {
			p.Errorf("%v, %v", has, err)
		}
		p.wantLoads(1)
		p.row.Store("there")
		p.until(2*brief, "the negative result to end", func() bool {
			got, _ := cache.Fetch(p.Context(), c, "k", p.load, policy)
			return got == "there"
		})
	},
	"expiry": func(p *place) {
		c := p.cache(cache.Config{})
		p.want(c, "k", cache.MustPolicy(cache.Options{TTL: brief, Stale: -1}), "old", cache.FromLoader, false)
		p.until(2*brief, "the value to end", func() bool {
			_, err := cache.Get[string](p.Context(), c, "k")
			return errors.Is(err, cache.ErrMiss)
		})
	},
	"stale while it is loaded": func(p *place) {
		c := p.cache(cache.Config{})
		policy := cache.MustPolicy(cache.Options{TTL: brief, Stale: time.Hour})
		p.want(c, "k", policy, "old", cache.FromLoader, false)
		p.row.Store("new")
		stale := false
		p.until(2*brief, "the stale value and then the new one", func() bool {
			got, err := cache.FetchResult(p.Context(), c, "k", p.load, policy)
			p.must(err)
			stale = stale || got.Stale && got.Value == "old"
			return got.Value == "new"
		})
		if !stale {
			p.Error("the old value was never given out as stale")
		}
	},
	"what has expired is none for Get, Has and Expire, in its stale time too": func(p *place) {
		c := p.cache(cache.Config{})
		policy := cache.MustPolicy(cache.Options{TTL: brief, Stale: time.Hour, StaleOnError: time.Hour})
		p.want(c, "k", policy, "old", cache.FromLoader, false)
		p.until(2*brief, "Get to miss", func() bool {
			_, err := cache.Get[string](p.Context(), c, "k")
			return errors.Is(err, cache.ErrMiss)
		})
		misses := c.Statistics().Misses
		_, err := cache.GetAfter[string](p.Context(), c, "k", settled{})
		p.wantErr("GetAfter", err, cache.ErrMiss)
		if n := c.Statistics().Misses; n != misses+1 {
			p.Errorf("a Get that misses counts as %d misses", n-misses)
		}
		if has, err := c.Has(p.Context(), "k"); has || err != nil {
			p.Errorf("Has: %v, %v", has, err)
		}
		if done, err := c.Expire(p.Context(), "k", time.Hour); done || err != nil {
			p.Errorf("Expire: %v, %v", done, err)
		}
		p.want(c, "k", policy, "old", cache.FromRedis, true)
	},
	"a negative result is not prolonged": func(p *place) {
		c := p.cache(cache.Config{})
		p.row = atomic.Value{}
		_, err := cache.Fetch(p.Context(), c, "k", p.load, cache.MustPolicy(cache.Options{TTL: time.Hour, NegativeTTL: brief}))
		p.wantErr("Fetch", err, cache.ErrNotFound)
		if done, err := c.Expire(p.Context(), "k", time.Hour); done || err != nil {
			p.Errorf("Expire: %v, %v", done, err)
		}
		p.until(2*brief, "it to end", func() bool {
			_, err := cache.Get[string](p.Context(), c, "k")
			return errors.Is(err, cache.ErrMiss)
		})
	},
	"stale for a loader that fails, and never what was invalidated": func(p *place) {
		c := p.cache(cache.Config{})
		policy := cache.MustPolicy(cache.Options{TTL: brief, Stale: -1, StaleOnError: time.Hour})
		p.want(c, "k", policy, "old", cache.FromLoader, false)
		away := errors.New("the database is away")
		broken := func(context.Context) (string, error) { return "", away }
		p.until(2*brief, "the value to expire", func() bool {
			got, err := cache.FetchResult(p.Context(), c, "k", broken, policy)
			return err == nil && got.Stale && got.Value == "old"
		})
		p.invalidate("k")
		_, err := cache.Fetch(p.Context(), c, "k", broken, policy)
		p.wantErr("Fetch after the invalidation", err, away)
	},
	"tags": func(p *place) {
		c, other := p.cache(cache.Config{}), p.cache(cache.Config{})
		policy := cache.Moderate.Tagged("category:7")
		for _, end := range []func(){
			func() { p.must(other.DeleteTag(p.Context(), "category:7")) },
			func() { p.invalidate("stamp:category:7") },
		} {
			for _, key := range []string{"a", "b"} {
				p.want(c, key, policy, "old", cache.FromLoader, false)
				p.want(other, key, nil, "old", cache.FromRedis, false)
			}
			end()
		}
		p.want(c, "a", nil, "old", cache.FromLoader, false)
	},
	"what was loaded before an invalidation is not stored after it": func(p *place) {
		c, other := p.cache(cache.Config{}), p.cache(cache.Config{})
		for name, end := range map[string]func(key string){
			"worker": func(key string) { p.invalidate(key) },
			"tag":    func(string) { p.invalidate("stamp:t") },
			"delete": func(key string) { p.must(other.Delete(p.Context(), key)) },
			"own":    func(key string) { p.must(c.Delete(p.Context(), key)) },
		} {
			p.row.Store("old")
			read, release, done := make(chan struct{}), make(chan struct{}), make(chan string, 1)
			go func() {
				value, _ := cache.Fetch(p.Context(), c, name, func(ctx context.Context) (string, error) {
					value, err := p.load(ctx)
					close(read)
					<-release
					return value, err
				}, cache.Moderate.Tagged("t"))
				done <- value
			}()
			<-read
			p.row.Store("new")
			end(name)
			close(release)
			if got := <-done; got != "old" && got != "new" {
				p.Errorf("%s: the caller got %q", name, got)
			}
			p.want(other, name, nil, "new", cache.FromLoader, false)
		}
		if s := c.Statistics(); s.Refused == 0 {
			p.Errorf("%+v", s)
		}
	},
	"lease and set": func(p *place) {
		c, ctx := p.cache(cache.Config{}), p.Context()
		l, err := c.Lease(ctx, "k", nil)
		p.must(err)
		_, err = c.Lease(ctx, "k", nil)
		p.wantErr("a second lease", err, cache.ErrTaken)
		p.must(cache.Set(ctx, l, "mine"))
		p.want(c, "k", nil, "mine", cache.FromRedis, false)
		l, err = c.Lease(ctx, "k", nil)
		p.must(err)
		p.invalidate("k")
		p.wantErr("Set after an invalidation", cache.Set(ctx, l, "mine"), cache.ErrLeaseLost)
		l, err = c.Lease(ctx, "k", nil)
		p.must(err)
		l.Release(ctx)
		p.want(c, "k", nil, "old", cache.FromLoader, false)
	},
	"a lease ends": func(p *place) {
		c := p.cache(cache.Config{Lease: brief})
		l, err := c.Lease(p.Context(), "k", nil)
		p.must(err)
		p.until(brief, "another lease", func() bool {
			_, err := c.Lease(p.Context(), "k", nil)
			return err == nil
		})
		p.wantErr("Set", cache.Set(p.Context(), l, "late"), cache.ErrLeaseLost)
	},
	"expire": func(p *place) {
		c, ctx := p.cache(cache.Config{}), p.Context()
		done, err := c.Expire(ctx, "k", time.Hour)
		if done || err != nil {
			p.Errorf("%v, %v", done, err)
		}
		p.want(c, "k", nil, "old", cache.FromLoader, false)
		done, err = c.Expire(ctx, "k", brief)
		if !done || err != nil {
			p.Errorf("%v, %v", done, err)
		}
		p.until(brief, "the value to end", func() bool { has, err := c.Has(ctx, "k"); return !has && err == nil })
	},
	"many": func(p *place) {
		c, ctx := p.cache(cache.Config{}), p.Context()
		var asked []string
		many := func(_ context.Context, keys []string) (map[string]string, error) {
			found := map[string]string{}
			for _, key := range keys {
				if asked = append(asked, key); key != "none" {
					found[key] = "v" + key
				}
			}
			return found, nil
		}
		wanted := []string{"a", "b", "none", "a"}
		for i, load := range [][]string{{"a", "b", "none"}, nil, {"b"}} {
			asked = nil
			got, err := cache.FetchMany(ctx, c, wanted, many, cache.Moderate.Tagged("t"))
			if slices.Sort(asked); err != nil || !maps.Equal(got, map[string]string{"a": "va", "b": "vb"}) || !slices.Equal(asked, load) {
				p.Errorf("got %v, %v, loaded %v, want %v", got, err, asked, load)
			}
			if i == 1 {
				p.invalidate("b")
			}
		}
	},
	"a sliding value lives while it is read, and has a hard end": func(p *place) {
		c := p.cache(cache.Config{})
		p.want(c, "k", cache.Sliding(brief, 4*brief), "old", cache.FromLoader, false)
		p.until(5*brief, "the hard end", func() bool {
			got, err := cache.Fetch(p.Context(), c, "k", func(context.Context) (string, error) { return "new", nil }, cache.Sliding(brief, 4*brief))
			p.must(err)
			return got == "new"
		})
	},
	"what a loader decides": func(p *place) {
		c := p.cache(cache.Config{})
		for want, decide := range map[string]func(*cache.Fill){
			"skip": func(f *cache.Fill) { f.Skip() },
			"ttl":  func(f *cache.Fill) { f.TTL(brief) },
		} {
			_, err := cache.Fetch(p.Context(), c, want, func(ctx context.Context) (string, error) { decide(cache.FillFrom(ctx)); return "x", nil }, cache.MustPolicy(cache.Options{TTL: time.Hour, Stale: -1}))
			p.must(err)
			p.until(2*brief, want, func() bool { has, err := c.Has(p.Context(), want); return !has && err == nil })
		}
	},
	"codecs and plain values": func(p *place) {
		text := strings.Repeat("text ", 500)
		p.row.Store(text)
		for name, config := range map[string]cache.Config{
			"msgpack": {Codec: msgpack.Codec{}}, "compressed": {CompressAbove: 1024}, "both": {Codec: msgpack.Codec{}, CompressAbove: 1024},
			"plain": {Plain: true}, "raw": {Codec: msgpack.Codec{}, RawValues: true}, "raw and compressed": {CompressAbove: 1024, RawValues: true},
		} {
			c := p.cache(config)
			p.want(c, name, nil, text, cache.FromLoader, false)
			p.want(c, name, nil, text, cache.FromRedis, false)
		}
	},
	"one load for all that ask at once": func(p *place) {
		a, b := p.cache(cache.Config{}), p.cache(cache.Config{})
		release, done := make(chan struct{}), make(chan error, 100)
		for i := range cap(done) {
			go func() {
				_, err := cache.Fetch(p.Context(), []*cache.Cache{a, b}[i%2], "k", func(ctx context.Context) (string, error) {
					<-release
					return p.load(ctx)
				}, nil)
				done <- err
			}()
		}
		testenv.Eventually(p, "all to have missed", func() bool { return a.Statistics().Misses+b.Statistics().Misses == uint64(cap(done)) })
		close(release)
		for range cap(done) {
			p.must(<-done)
		}
		p.wantLoads(1)
	},
}

// The same behaviors hold over the Store and over Redis.
func TestBehaviours(t *testing.T) {
	t.Parallel()
	for where, on := range map[string]func(*testing.T) *place{"store": onStore, "redis": onRedis} {
		for name, behaviour := range behaviors {
			t.Run(fmt.Sprint(where, "/", name), func(t *testing.T) {
				t.Parallel()
				p := on(t)
				p.row.Store("old")
				behaviour(p)
			})
		}
	}
}
