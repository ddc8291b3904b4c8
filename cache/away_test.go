package cache_test

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/cache"
	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/internal/testenv"
)

// With no Redis at all, everything still answers.
func TestNoRedis(t *testing.T) {
	t.Parallel()
	db := &database{value: "old"}
	c := newCache(t, cache.Config{})
	for range 2 {
		wantFetch(t, "Fetch", c, "k", db.read, cache.Moderate.Tagged("t"), "old", cache.FromLoader)
	}
	p := db.paused()
	var all []<-chan answer
	for range 10 {
		all = append(all, fetchBeside(t, c, "k", p.load, nil))
	}
	<-p.read
	testenv.Eventually(t, "all to wait", func() bool { return c.Statistics().Misses == 12 })
	close(p.release)
	for _, answers := range all {
		wantAnswer(t, "a caller", answers, "old")
	}
	_, err := cache.Get[string](t.Context(), c, "k")
	wantError(t, "Get", err, cache.ErrNoRedis)
	wantError(t, "Healthy", c.Healthy(), cache.ErrNoRedis)
	testenv.Must(t, c.Delete(t.Context(), "k"))
	got, err := cache.FetchMany(t.Context(), c, []string{"a", "b"}, func(context.Context, []string) (map[string]string, error) {
		return map[string]string{"a": "1"}, nil
	}, nil)
	if err != nil || len(got) != 1 || got["a"] != "1" {
		t.Errorf("FetchMany: %v, %v", got, err)
	}
}

// A link leads to a Redis and can be disturbed.
func newLink(t *testing.T, addr string) *servers.Link {
	t.Helper()
	link, err := servers.NewLink("redis", addr)
	testenv.Must(t, err)
	t.Cleanup(link.Close)
	return link
}

// Clients that heed contexts, and those that do not, with the patience and the retries that
// go-redis has by default, and such as set no deadline on their connections, or none but the
// context's.
func clientKinds(t *testing.T, addr string) map[string]redis.UniversalClient {
	kinds := map[string]redis.UniversalClient{
		"heeding":            redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true}),
		"unheeding":          redis.NewClient(&redis.Options{Addr: addr}),
		"without deadlines":  redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true, ReadTimeout: -2, WriteTimeout: -2}),
		"with the context's": redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true, ReadTimeout: -1, WriteTimeout: -1}),
	}
	t.Cleanup(func() {
		for _, client := range kinds {
			_ = client.Close()
		}
	})
	return kinds
}

// A Redis that is unavailable or never replies costs a caller a bounded time and no error. Later it
// is used again.
func TestRedisAway(t *testing.T) {
	t.Parallel()
	r := testenv.Redis(t)
	for _, fault := range []string{"closed", "black hole"} {
		options, err := redis.ParseURL(r.URL)
		testenv.Must(t, err)
		link := newLink(t, options.Addr)
		for name, client := range clientKinds(t, link.Addr()) {
			db := &database{value: "old"}
			c := newCache(t, cache.Config{Redis: client, Timeout: 100 * time.Millisecond, Pause: 50 * time.Millisecond, Prefix: fault + name})
			testenv.Eventually(t, "a value in Redis", func() bool {
				got, err := cache.FetchResult(t.Context(), c, "k", db.read, nil)
				return err == nil && got.Source == cache.FromRedis
			})
			if fault == "closed" {
				link.Close()
			} else {
				testenv.Must(t, link.Swallow())
			}
			for i := range 20 {
				start := time.Now()
				value, err := cache.Fetch(t.Context(), c, fmt.Sprint(i), db.read, cache.Moderate)
				if took := time.Since(start); err != nil || value != "old" || took > 20*time.Second {
					t.Errorf("%s, %s: %q, %v after %v", fault, name, value, err, took)
				}
			}
			testenv.Eventually(t, "Healthy to say it", func() bool { // on a busy machine, faults may not count
				_, _ = cache.Fetch(t.Context(), c, "k", db.read, cache.Moderate)
				err := c.Healthy()
				return err != nil && strings.Contains(err.Error(), "redis is away")
			})
			if err := c.Delete(t.Context(), "k"); err == nil {
				t.Errorf("%s, %s: Delete says that the key is gone", fault, name)
			}
			if fault == "closed" {
				testenv.Must(t, link.Open())
			} else {
				link.Calm(t.Context())
			}
			testenv.Eventually(t, "Redis to be used again", func() bool {
				got, err := cache.FetchResult(t.Context(), c, "k", db.read, nil)
				return err == nil && got.Source == cache.FromRedis && c.Healthy() == nil
			})
		}
	}
}

// A Redis that freezes during a load costs the caller only the time of its commands.
func TestRedisFreezesDuringLoad(t *testing.T) {
	t.Parallel()
	r := testenv.OwnRedis(t)
	w := worldAt(t, r.URL())
	c := w.cache(cache.Config{Timeout: 100 * time.Millisecond})
	testenv.Eventually(t, "a first value", func() bool {
		got, err := cache.FetchResult(t.Context(), c, "first", w.db.read, nil)
		return err == nil && got.Source == cache.FromRedis
	})
	p := w.db.paused()
	answers := fetchBeside(t, c, "k", p.load, nil)
	<-p.read
	testenv.Must(t, r.Pause())
	close(p.release)
	wantAnswer(t, "Fetch", answers, "old")
	testenv.Must(t, r.Resume())
}

// Leases that come back with an old snapshot would let an old value in; here a memory's
// subscription is lost with the server, which drops what was under way.
func TestRedisRestartsFromASnapshot(t *testing.T) {
	t.Parallel()
	r := testenv.OwnRedis(t)
	w := worldAt(t, r.URL())
	c := w.cache(cache.Config{Lease: time.Hour, HardTimeout: time.Minute, Memory: cache.Memory{Size: 100, MaxStaleness: time.Second, Period: 50 * time.Millisecond}})
	testenv.Eventually(t, "memory to open", func() bool { return c.Healthy() == nil })
	p := w.db.paused()
	answers := fetchBeside(t, c, "k", p.load, nil)
	<-p.read
	testenv.Must(t, w.client.Save(t.Context()).Err())
	w.commit("new", "k")
	testenv.Must(t, r.Kill())
	testenv.Eventually(t, "the loss to be noticed", func() bool { return c.Healthy() != nil })
	testenv.Must(t, r.Restart(t.Context()))
	direct := testenv.Client(t, r.URL())
	if n, err := direct.Exists(t.Context(), "lock:fill:{k}").Result(); n != 1 || err != nil {
		t.Fatalf("the lease did not come back: %d, %v", n, err)
	}
	testenv.Eventually(t, "the subscription to be back", func() bool { return c.Healthy() == nil })
	close(p.release)
	wantAnswer(t, "the caller from before", answers, "old")
	if text := direct.Get(t.Context(), "k").Val(); text != "" {
		t.Errorf("Redis holds %s", text)
	}
	testenv.Eventually(t, "the new value", func() bool {
		value, err := cache.Fetch(t.Context(), c, "k", w.db.read, nil)
		return err == nil && value == "new"
	})
}

// At maxmemory nothing is stored and every call answers. Healthy reports it until a value is
// stored.
func TestRedisOutOfMemory(t *testing.T) {
	t.Parallel()
	r := testenv.OwnRedis(t, "--maxmemory", "1", "--maxmemory-policy", "noeviction")
	w := worldAt(t, r.URL())
	c := w.cache(cache.Config{})
	for range 10 {
		wantFetch(t, "Fetch", c, "k", w.db.read, nil, "old", cache.FromLoader)
	}
	_, err := c.Lease(t.Context(), "k", nil)
	wantError(t, "Lease", err, cache.ErrRedisOutOfMemory)
	wantError(t, "Healthy", c.Healthy(), cache.ErrRedisOutOfMemory)
	if n := c.Statistics().Errors; n < 10 {
		t.Errorf("%d values could not be stored, and %d errors are counted", 10, n)
	}
	testenv.Must(t, w.client.ConfigSet(t.Context(), "maxmemory", "0").Err())
	wantFetch(t, "with memory", c, "k", w.db.read, nil, "old", cache.FromLoader)
	testenv.Must(t, c.Healthy())
}

func TestConfigIsRefused(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer client.Close()
	ring := redis.NewRing(&redis.RingOptions{})
	defer ring.Close()
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}, ReadOnly: true})
	defer cluster.Close()
	for want, config := range map[string]cache.Config{
		"Jitter is 0.5, wanted 0.1 to 0.2":             {Jitter: 0.5},
		"Jitter is NaN, wanted 0.1 to 0.2":             {Jitter: math.NaN()},
		"Codec has no name":                            {Codec: namedCodec{cache.JSON, ""}},
		`Codec is called "\xff", wanted UTF-8`:         {Codec: namedCodec{cache.JSON, "\xff"}},
		"HardTimeout is 1m0s, wanted 1ms to 9.999":     {HardTimeout: time.Minute},
		"Timeout is 1ns, wanted 10ms to 5s":            {Timeout: 1},
		"Loads is -1, wanted 1 at least":               {Loads: -1},
		"redis is a Ring":                              {Redis: ring},
		"redis reads from replicas":                    {Redis: cluster},
		"Memory.Sources is empty":                      {Redis: client, Memory: cache.Memory{Size: 1}},
		"Memory.Sources has an empty one":              {Redis: client, Memory: cache.Memory{Sources: []string{""}}},
		"Memory.Bytes is 9, wanted Memory.Size (10)":   {Redis: client, Memory: cache.Memory{Size: 10, Bytes: 9, MaxStaleness: time.Second}},
		"Memory needs Redis":                           {Memory: cache.Memory{Size: 1, MaxStaleness: time.Second}},
		"Policy has tags":                              {Plain: true, Policy: cache.Moderate.Tagged("t")},
		"CompressAbove is -1, wanted none or more":     {CompressAbove: -1},
		"CompressAbove is 1024 with Plain":             {CompressAbove: 1024, Plain: true, Policy: cache.MustPolicy(cache.Options{TTL: time.Minute, Stale: -1, NegativeTTL: -1})},
		"RawValues is set with Plain":                  {Plain: true, RawValues: true},
		`Codec is called "x+gzip"`:                     {Codec: namedCodec{cache.JSON, "x+gzip"}},
		"make cache: Lease is 1ns, wanted 10ms to 1h0": {Lease: 1, HardTimeout: 1},
		`make cache: Prefix is "{shop:", whose braces form no hash tag, so its keys have no lease and are never stored: close the hash tag, as in "{shop}:", or leave out the braces`: {Prefix: "{shop:"},
		`Prefix is "shop}:"`:  {Prefix: "shop}:"},
		`Prefix is "{}shop:"`: {Prefix: "{}shop:"},
	} {
		config.Logger = slog.New(slog.DiscardHandler)
		if c, err := cache.New(config); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, %v, want %q", c, err, want)
		}
	}
	for _, prefix := range []string{"", "shop:", "{shop}", "shop:{1}:", "{a}}{"} {
		testenv.Must(t, newCache(t, cache.Config{Prefix: prefix}).Close())
	}
	for want, o := range map[string]cache.Options{
		"TTL is 0s":        {},
		"Sliding excludes": {TTL: time.Second, Sliding: true, SlidingMax: time.Minute, Stale: time.Second},
		"SlidingMax is 0s": {TTL: time.Second, Sliding: true},
		"EarlyRefresh is NaN, wanted none or more":                 {TTL: time.Second, EarlyRefresh: math.NaN()},
		"EarlyRefresh is +Inf, wanted none or more":                {TTL: time.Second, EarlyRefresh: math.Inf(1)},
		"EarlyRefresh is -1, wanted none or more":                  {TTL: time.Second, EarlyRefresh: -1},
		"Tags has an empty":                                        {TTL: time.Second, Tags: []string{""}},
		"make policy: TTL is 17520h0m0s, wanted 8760h0m0s at most": {TTL: 2 * 365 * 24 * time.Hour},
	} {
		if _, err := cache.NewPolicy(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// New refuses a client that may answer with unlinked values, even if an application wraps it. It
// also refuses a nil pointer, which would panic at the first call.
func TestClientsAreRefused(t *testing.T) {
	t.Parallel()
	single := func(o redis.Options) *redis.Client { o.Addr = "127.0.0.1:1"; return redis.NewClient(&o) }
	given := redis.UniversalOptions{Addrs: []string{"127.0.0.1:1"}, ClientSideCache: redis.NewLocalCache(redis.CacheConfig{})}
	replicas := redis.FailoverOptions{MasterName: "m", SentinelAddrs: []string{"127.0.0.1:1"}, RouteByLatency: true}
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}, ReadOnly: true})
	for _, c := range []struct {
		client redis.UniversalClient
		want   string
	}{
		{redis.NewRing(&redis.RingOptions{}), "redis is a Ring"},
		{cluster, "redis reads from replicas"},
		{struct{ *redis.ClusterClient }{cluster}, "redis reads from replicas"},
		{redis.NewFailoverClusterClient(&replicas), "redis reads from replicas"},
		{single(redis.Options{ClientSideCacheConfig: &redis.ClientSideCacheConfig{}}), "redis caches in the client"},
		{struct{ *redis.Client }{single(redis.Options{ClientSideCache: given.ClientSideCache})}, "redis caches in the client"},
		{redis.NewUniversalClient(&given), "redis caches in the client"},
		{(*redis.Client)(nil), "redis is a nil *redis.Client: give a client, or leave it out"},
		{(*redis.ClusterClient)(nil), "redis is a nil *redis.ClusterClient"},
	} {
		_, err := cache.New(cache.Config{Redis: c.client, Logger: slog.New(slog.DiscardHandler)})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%T: got %v, want %q", c.client, err, c.want)
		}
		if !strings.Contains(c.want, "nil") {
			_ = c.client.Close()
		}
	}
}
