package cache_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/unstale/unstale/cache"
	"github.com/unstale/unstale/cache/cachetest"
	"github.com/unstale/unstale/internal/testenv"
)

// A loaded value, and one from Redis, is fresh for the rest of its TTL. A stale one is not.
func TestFreshFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := cachetest.NewStore(t)
		c := store.Cache(cache.Config{})
		load := func(context.Context) (string, error) { return "v", nil }
		policy := cache.For(time.Minute)
		fetch := func(from cache.Source, stale bool) time.Duration {
			t.Helper()
			got, err := cache.FetchResult(t.Context(), c, "k", load, policy)
			if err != nil || got.Source != from || got.Stale != stale {
				t.Errorf("%+v, %v", got, err)
			}
			return got.FreshFor
		}
		whole := fetch(cache.FromLoader, false)
		if whole < 50*time.Second || whole > 70*time.Second {
			t.Errorf("after the load it is fresh for %v", whole)
		}
		store.Advance(20 * time.Second)
		if left := fetch(cache.FromRedis, false); left != whole-20*time.Second {
			t.Errorf("after 20 s it is fresh for %v of %v", left, whole)
		}
		store.Advance(whole - 19*time.Second)
		if left := fetch(cache.FromRedis, true); left != 0 {
			t.Errorf("an expired value is fresh for %v", left)
		}
		synctest.Wait()
		got, err := cache.FetchResult(t.Context(), c, "skipped", func(ctx context.Context) (string, error) {
			cache.FillFrom(ctx).Skip()
			return "v", nil
		}, policy)
		if err != nil || got.FreshFor != 0 {
			t.Errorf("a value that is not stored: %+v, %v", got, err)
		}
	})
}

// A value that no invalidation reaches is not fresh for any time.
func TestFreshForRefused(t *testing.T) {
	t.Parallel()
	entry := cache.NewReadMap("v").Entry("e", cache.Options{TTL: time.Minute})
	c := cachetest.NewStore(t).Cache(cache.Config{Prefix: "shop:"})
	for key, fresh := range map[string]bool{"shop:k": true, "other:k": false} {
		got, err := cache.FetchReadResult(t.Context(), c, entry.Read(key), func(context.Context) (string, error) { return "v", nil })
		if err != nil || got.Value != "v" || got.Source != cache.FromLoader || got.FreshFor > 0 != fresh {
			t.Errorf("%s: %+v, %v", key, got, err)
		}
	}
}

// A value in L1 is fresh for the rest of its TTL, even if L1 drops it earlier.
func TestFreshForInMemory(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	channel := "c:" + t.Name()
	memory := memoryOf(channel)
	memory.TTL = time.Minute
	c := w.cache(cache.Config{Memory: memory})
	w.beat(channel, "e")
	open(t, c)
	load := func(context.Context) (string, error) { return "v", nil }
	policy := cache.For(time.Hour)
	loaded, err := cache.FetchResult(t.Context(), c, "k", load, policy)
	testenv.Must(t, err)
	kept, err := cache.FetchResult(t.Context(), c, "k", load, policy)
	testenv.Must(t, err)
	if kept.Source != cache.FromMemory || kept.FreshFor > loaded.FreshFor+time.Second || kept.FreshFor < 45*time.Minute {
		t.Errorf("loaded: %+v, then %+v", loaded, kept)
	}
}
