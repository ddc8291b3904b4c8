package cache_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/unstale/unstale/cache"
	"github.com/unstale/unstale/cache/cachetest"
	"github.com/unstale/unstale/internal/testenv"
)

// After a restart, a process warms the keys that all processes have read most.
func TestPopularAfterARestart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	config := cache.Config{Prefix: "shop:", Popularity: true}
	one, two := w.cache(config), w.cache(config)
	silent := w.cache(cache.Config{Prefix: "shop:"})
	read := func(c *cache.Cache, n int, key string) {
		t.Helper()
		for range n {
			wantFetched(t, key, c, key, w.db.read, "old")
		}
	}
	// Alone, each process reads "own" most: one in 16 reads counts.
	for i, c := range []*cache.Cache{one, two} {
		read(c, 2000, fmt.Sprint("own", i))
		read(c, 1900, "both")
		read(c, 200, "seldom")
	}
	read(silent, 3000, "silent")
	testenv.Must(t, one.Close())
	testenv.Must(t, two.Close())
	for _, key := range []string{"own0", "own1", "both", "seldom"} {
		w.unlink("shop:" + key)
	}
	again := w.cache(config)
	popular, err := again.Popular(t.Context(), 10)
	testenv.Must(t, err)
	if len(popular) != 4 || popular[0] != "both" || popular[3] != "seldom" {
		t.Errorf("got %v", popular)
	}
	if first, err := again.Popular(t.Context(), 1); err != nil || !slices.Equal(first, []string{"both"}) {
		t.Errorf("got %v, %v", first, err)
	}
	got, err := cache.Warm(t.Context(), again, slices.Values(popular), func(context.Context, string) (string, error) { return "warm", nil }, nil, cache.WarmOptions{})
	testenv.Must(t, err)
	wantWarmed(t, "Warm", got, cache.Warmed{Loaded: 4})
	wantFetch(t, "both", again, "both", w.db.read, nil, "warm", cache.FromRedis)
	if other, err := w.cache(cache.Config{Prefix: "other:"}).Popular(t.Context(), 10); err != nil || len(other) != 0 {
		t.Errorf("another prefix: %v, %v", other, err)
	}
}

// Reads from L1 and reads by FetchMany count too.
func TestPopularCountsAllReads(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.cache(cache.Config{Popularity: true, Memory: cache.Memory{Size: 10, Channel: "c:" + t.Name(), MaxStaleness: time.Hour}})
	testenv.Eventually(t, "memory to open", func() bool { return c.Healthy() == nil })
	for range 2000 {
		_, err := cache.Fetch(t.Context(), c, "one", w.db.read, nil)
		testenv.Must(t, err)
		_, err = cache.FetchMany(t.Context(), c, []string{"a", "b"}, func(_ context.Context, keys []string) (map[string]string, error) { return allOf(keys), nil }, nil)
		testenv.Must(t, err)
	}
	testenv.Must(t, c.Close())
	got, err := w.cache(cache.Config{}).Popular(t.Context(), 10)
	testenv.Must(t, err)
	if slices.Sort(got); !slices.Equal(got, []string{"a", "b", "one"}) {
		t.Errorf("got %v", got)
	}
}

// In a Cluster the set is on its own node, independent of the keys.
func TestPopularInACluster(t *testing.T) {
	t.Parallel()
	r := testenv.OwnCluster(t, 3, false)
	w := worldAt(t, r.URL())
	for _, prefix := range []string{"a:", "{b}:"} {
		c := w.cache(cache.Config{Redis: r.Client, Prefix: prefix, Popularity: true})
		for i := range 1000 {
			key := fmt.Sprint("k", i%3)
			wantFetched(t, key, c, key, w.db.read, "old")
		}
		testenv.Must(t, c.Close())
		got, err := w.cache(cache.Config{Redis: r.Client, Prefix: prefix}).Popular(t.Context(), 10)
		if slices.Sort(got); err != nil || !slices.Equal(got, []string{"k0", "k1", "k2"}) {
			t.Errorf("%s: got %v, %v", prefix, got, err)
		}
	}
}

// Popular returns an error if Redis is missing, and none with package cachetest.
func TestPopularErrors(t *testing.T) {
	t.Parallel()
	c := newCache(t, cache.Config{})
	_, err := c.Popular(t.Context(), 1)
	wantError(t, "without Redis", err, cache.ErrNoRedis)
	testenv.Must(t, c.Close())
	_, err = c.Popular(t.Context(), 1)
	wantError(t, "closed", err, cache.ErrClosed)
	if _, err := cache.New(cache.Config{Popularity: true}); err == nil || !strings.Contains(err.Error(), "Popularity needs Redis") {
		t.Errorf("got %v", err)
	}
	fake := cachetest.NewStore(t).Cache(cache.Config{Popularity: true})
	wantFetched(t, "fake", fake, "k", (&database{value: "v"}).read, "v")
	if got, err := fake.Popular(t.Context(), 1); err != nil || got != nil {
		t.Errorf("fake: %v, %v", got, err)
	}
}
