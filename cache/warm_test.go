package cache_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/unstale/unstale/cache"
	"github.com/unstale/unstale/internal/testenv"
)

// keysOf are n keys.
func keysOf(n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprint("k", i)
	}
	return keys
}

func wantWarmed(t *testing.T, what string, got, want cache.Warmed) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %+v, want %+v", what, got, want)
	}
}

// Keys are loaded in parallel within the limit. Keys that fail stop no others.
func TestWarm(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.cache(cache.Config{Prefix: "shop:"})
	broken := errors.New("the database is away")
	keys := keysOf(30)
	var now, most, loads atomic.Int64
	load := func(_ context.Context, key string) (string, error) {
		loads.Add(1)
		for n := now.Add(1); ; {
			if old := most.Load(); n <= old || most.CompareAndSwap(old, n) {
				break
			}
		}
		defer now.Add(-1)
		switch key {
		case "k10", "k11", "k12":
			return "", fmt.Errorf("load: %w", cache.ErrNotFound)
		case "k3":
			return "", broken
		case "k4":
			panic("oops")
		}
		return "v" + key, nil
	}
	for _, key := range keys[20:] {
		wantFetch(t, key, c, key, w.db.read, nil, "old", cache.FromLoader)
	}
	got, err := cache.Warm(t.Context(), c, slices.Values(keys), load, nil, cache.WarmOptions{Parallel: 3})
	wantWarmed(t, "first", got, cache.Warmed{Loaded: 15, Already: 10, Missing: 3, Failed: 2})
	wantError(t, "first", err, broken)
	var panicked *cache.PanicError
	if !errors.As(err, &panicked) || !strings.Contains(err.Error(), "warm k3: the database is away") {
		t.Errorf("got %v", err)
	}
	if n := most.Load(); n > 3 {
		t.Errorf("%d loads at once", n)
	}
	wantFetch(t, "then", c, "k5", w.db.read, nil, "vk5", cache.FromRedis)
	loads.Store(0)
	got, err = cache.Warm(t.Context(), c, slices.Values(slices.Concat(keys[:3], keys[5:])), load, nil, cache.WarmOptions{})
	wantWarmed(t, "again", got, cache.Warmed{Already: 25, Missing: 3})
	if testenv.Must(t, err); loads.Load() != 0 {
		t.Errorf("%d loads", loads.Load())
	}
}

// With any number of failures, the error stays short.
func TestWarmFails(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.cache(cache.Config{})
	got, err := cache.Warm(t.Context(), c, slices.Values(keysOf(100)), func(context.Context, string) (string, error) { return "", errors.New("no") }, nil, cache.WarmOptions{})
	wantWarmed(t, "all", got, cache.Warmed{Failed: 100})
	if err == nil || strings.Count(err.Error(), ": no") != 10 || !strings.Contains(err.Error(), "90 more keys failed") {
		t.Errorf("got %v", err)
	}
}

// An ended context, a closed Cache and an unavailable Redis stop it, and it loads nothing
// needlessly.
func TestWarmStops(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	endless := func(yield func(string) bool) {
		for i := 0; yield(fmt.Sprint("k", i)); i++ {
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	var after atomic.Int64
	got, err := cache.Warm(ctx, w.cache(cache.Config{}), endless, func(_ context.Context, key string) (string, error) {
		switch {
		case ctx.Err() != nil:
			after.Add(1)
		case key == "k7":
			cancel()
		}
		return key, nil
	}, nil, cache.WarmOptions{Parallel: 2})
	wantError(t, "context", err, context.Canceled)
	// With two in parallel, one key before k7 may be unfinished, and one may have begun when k7
	// ends it.
	if got.Failed != 0 || got.Loaded < 6 || after.Load() > 1 {
		t.Errorf("%+v, %d loaded after the end", got, after.Load())
	}
	closed := w.cache(cache.Config{})
	testenv.Must(t, closed.Close())
	for what, c := range map[string]*cache.Cache{cache.ErrClosed.Error(): closed, cache.ErrNoRedis.Error(): newCache(t, cache.Config{})} {
		got, err := cache.Warm(t.Context(), c, endless, func(context.Context, string) (string, error) { t.Error("loaded"); return "", nil }, nil, cache.WarmOptions{})
		if wantWarmed(t, what, got, cache.Warmed{}); err == nil || err.Error() != "warm: "+what {
			t.Errorf("got %v, want %s", err, what)
		}
	}
	_, err = cache.Warm(t.Context(), w.cache(cache.Config{}), endless, func(context.Context, string) (string, error) { return "", nil }, nil, cache.WarmOptions{Parallel: -1})
	if err == nil || !strings.Contains(err.Error(), "Parallel is -1") {
		t.Errorf("got %v", err)
	}
}

// A Redis that stores nothing stops it, with few keys or many. Earlier refusals do not, since they
// may have ended.
func TestWarmStopsWhereNothingIsStored(t *testing.T) {
	t.Parallel()
	r := testenv.OwnRedis(t, "--maxmemory", "1", "--maxmemory-policy", "noeviction")
	w := worldAt(t, r.URL())
	c := w.cache(cache.Config{})
	load := func(_ context.Context, key string) (string, error) { return key, nil }
	for _, n := range []int{1, 100} {
		got, err := cache.Warm(t.Context(), c, slices.Values(keysOf(n)), load, nil, cache.WarmOptions{Parallel: 2})
		wantError(t, fmt.Sprint(n), err, cache.ErrRedisOutOfMemory)
		if got.Failed > 0 || got.Loaded > 2 {
			t.Errorf("%d keys: %+v", n, got)
		}
		if err != nil && strings.Count(err.Error(), cache.ErrRedisOutOfMemory.Error()) != 1 {
			t.Errorf("got %v", err)
		}
	}
	if err := c.Healthy(); err == nil || strings.Count(err.Error(), cache.ErrRedisOutOfMemory.Error()) != 1 {
		t.Errorf("Healthy says %v", err)
	}
	testenv.Must(t, w.client.ConfigSet(t.Context(), "maxmemory", "0").Err())
	got, err := cache.Warm(t.Context(), c, slices.Values(keysOf(10)), load, nil, cache.WarmOptions{Parallel: 2})
	testenv.Must(t, err)
	wantWarmed(t, "with memory", got, cache.Warmed{Loaded: 10})
	testenv.Must(t, c.Healthy())
}

// A value that was loaded to warm up before an invalidation is not stored after it.
func TestWarmAndInvalidation(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.cache(cache.Config{})
	p := w.db.paused()
	done := make(chan cache.Warmed, 1)
	go func() {
		got, _ := cache.Warm(t.Context(), c, slices.Values([]string{"k"}), func(ctx context.Context, _ string) (string, error) { return p.load(ctx) }, nil, cache.WarmOptions{})
		done <- got
	}()
	<-p.read
	w.commit("new", "k")
	close(p.release)
	wantWarmed(t, "warm", <-done, cache.Warmed{Unstored: 1})
	wantFetch(t, "then", c, "k", w.db.read, nil, "new", cache.FromLoader)
}

// Hottest names what is read most, and nothing that was invalidated.
func TestHottest(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	channel := "c:" + t.Name()
	c := w.cache(cache.Config{Memory: cache.Memory{Size: 100, Channel: channel, MaxStaleness: time.Hour, TTL: time.Hour}})
	if got := w.cache(cache.Config{}).Hottest(5); got != nil {
		t.Errorf("without memory: %v", got)
	}
	testenv.Eventually(t, "memory to open", func() bool { return c.Healthy() == nil })
	policy := cache.Moderate.Tagged("t")
	got, err := cache.Warm(t.Context(), c, slices.Values(keysOf(20)), func(_ context.Context, key string) (string, error) { return key, nil }, policy, cache.WarmOptions{})
	wantWarmed(t, "warm", got, cache.Warmed{Loaded: 20})
	testenv.Must(t, err)
	testenv.Eventually(t, "the keys that are read most", func() bool {
		for range 100 {
			for _, key := range []string{"k3", "k4"} {
				wantFetch(t, key, c, key, w.db.read, policy, key, cache.FromMemory)
			}
		}
		hot := c.Hottest(2)
		slices.Sort(hot)
		return slices.Equal(hot, []string{"k3", "k4"})
	})
	if hot := c.Hottest(1000); len(hot) != 20 {
		t.Errorf("%d keys: %v", len(hot), hot)
	}
	testenv.Must(t, c.Delete(t.Context(), "k3"))
	if hot := c.Hottest(1000); len(hot) != 19 || slices.Contains(hot, "k3") {
		t.Errorf("%v", hot)
	}
	testenv.Must(t, c.DeleteTag(t.Context(), "t"))
	if hot := c.Hottest(1000); len(hot) != 0 {
		t.Errorf("%v", hot)
	}
}
