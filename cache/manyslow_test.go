package cache_test

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/cache"
	"github.com/unstale/unstale/internal/testenv"
)

// A slowWorld has a Cache whose link to Redis carries 4 MiB per second, and what its loader was
// asked for.
type slowWorld struct {
	*world
	c     *cache.Cache
	log   *lines
	asked [][]string
	trips atomic.Int64 // to Redis
}

func newSlowWorld(t *testing.T) *slowWorld {
	t.Helper()
	w := &slowWorld{world: newWorld(t), log: &lines{}}
	options, err := redis.ParseURL(w.url)
	testenv.Must(t, err)
	link := newLink(t, options.Addr)
	testenv.Must(t, link.Throttle(4<<10))
	options.Addr, options.ContextTimeoutEnabled = link.Addr(), true
	client := redis.NewClient(options)
	t.Cleanup(func() { _ = client.Close() })
	w.c = w.cache(cache.Config{Redis: client, Timeout: 500 * time.Millisecond, Logger: w.log.logger(), Hooks: cache.Hooks{Redis: w.trip}})
	return w
}

func (w *slowWorld) trip(ctx context.Context, _ string) (context.Context, func(error)) {
	w.trips.Add(1)
	return ctx, func(error) {}
}

// fill stores values of some bytes over another link.
func (w *slowWorld) fill(keys []string, bytes int) {
	w.Helper()
	_, err := cache.FetchMany(w.Context(), w.cache(cache.Config{Timeout: 5 * time.Second}), keys, func(context.Context, []string) (map[string]string, error) {
		values := map[string]string{}
		for _, key := range keys {
			values[key] = strings.Repeat("v", bytes)
		}
		return values, nil
	}, nil)
	testenv.Must(w, err)
}

// loads fetches the keys and returns those that were loaded.
func (w *slowWorld) loads(keys []string) []string {
	w.Helper()
	w.asked = nil
	got, err := cache.FetchMany(w.Context(), w.c, keys, manyOf(&w.asked, "new"), nil)
	testenv.Must(w, err)
	if len(got) != len(keys) {
		w.Fatalf("%d values of %d keys", len(got), len(keys))
	}
	return slices.Concat(w.asked...)
}

// One value that takes longer than the timeout costs the load of its key, once the Cache knows its
// size, and of no other. The breaker stays closed.
func TestFetchManyOfOneLargeValue(t *testing.T) {
	t.Parallel()
	w, keys := newSlowWorld(t), keysOf(3000)
	w.fill(slices.Concat(keys[:1700], keys[1701:]), 20)
	w.fill(keys[1700:1701], 8<<20)
	testenv.Eventually(t, "a call that loads one key", func() bool { return slices.Equal(w.loads(keys), []string{"k1700"}) })
	testenv.Eventually(t, "calls that leave the breaker closed", func() bool { // on a busy machine other commands can time out
		before := len(w.log.with("Redis is away"))
		for range 6 { // more than the failures that open the breaker
			w.loads(keys[1600:1800])
		}
		return len(w.log.with("Redis is away")) == before
	})
}

// Values that together take longer than the timeout are read in several pipelines.
func TestFetchManyOfMediumValues(t *testing.T) {
	t.Parallel()
	w, keys := newSlowWorld(t), keysOf(500)
	w.fill(keys, 8<<10)
	testenv.Eventually(t, "a call that loads nothing", func() bool { return len(w.loads(keys)) == 0 })
}

// Keys of a pipeline that took too long get leases before they are loaded, so they are stored.
func TestFetchManyStoresWhatItCouldNotRead(t *testing.T) {
	t.Parallel()
	w := newSlowWorld(t)
	w.fill([]string{"k0"}, 20)
	w.fill([]string{"k1"}, 8<<20)
	testenv.Eventually(t, "the value of the last key", func() bool {
		w.loads([]string{"k0", "k1", "k2"})
		return w.stored("k2") != ""
	})
}

// Warm reads values that together take longer than the timeout in several pipelines, and not one by
// one.
func TestWarmOverASlowLink(t *testing.T) {
	t.Parallel()
	w, keys := newSlowWorld(t), keysOf(1000)
	w.fill(keys, 8<<10)
	testenv.Eventually(t, "few round trips", func() bool {
		w.trips.Store(0)
		got, err := cache.Warm(t.Context(), w.c, slices.Values(keys), func(context.Context, string) (string, error) { return "", nil }, nil, cache.WarmOptions{})
		return err == nil && got.Already == len(keys) && w.trips.Load() < 200
	})
}
