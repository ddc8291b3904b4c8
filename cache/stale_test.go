package cache_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/unstale/unstale/cache"
	"github.com/unstale/unstale/internal/testenv"
)

// expire makes the entry under a key look as old as it will be after its TTL: what e, s and o hold is moved back.
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

// A value that has expired is given out at once, while one load, and only one, gets the new one.
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
	w.age("k", 3*time.Hour)
	wantFetch(t, "after the stale time", c, "k", w.db.read, policy, "new", cache.FromLoader)
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
	c := w.cache(cache.Config{SoftTimeout: 20 * time.Millisecond})
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
	got, err = cache.FetchResult(t.Context(), c, "k", p.load, policy)
	if err != nil || got.Value != "old" || !got.Stale {
		t.Errorf("after the soft timeout: %+v, %v", got, err)
	}
	// A row that is gone is no failure.
	close(p.release)
	testenv.Eventually(t, "the load to end", func() bool { return c.Statistics().Sets == 2 })
	w.age("k", 2*time.Minute)
	_, err = cache.Fetch(t.Context(), c, "k", func(context.Context) (string, error) { return "", cache.ErrNotFound }, policy)
	wantError(t, "not found", err, cache.ErrNotFound)
	must(t, c.Delete(t.Context(), "k"))
	wantFetch(t, "again", c, "k", w.db.read, policy, "old", cache.FromLoader)
	w.age("k", 3*time.Hour)
	_, err = cache.Fetch(t.Context(), c, "k", fail, policy)
	wantError(t, "after the bound", err, broken)
}

// With EarlyRefresh the value is replaced before it expires.
func TestEarlyRefresh(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.cache(cache.Config{})
	policy := cache.MustPolicy(cache.Options{TTL: time.Minute, EarlyRefresh: 1})
	wantFetch(t, "first", c, "k", w.db.read, policy, "old", cache.FromLoader)
	e := w.entry("k")
	e["d"] = time.Hour.Milliseconds() // a load of an hour begins in time for nearly everybody
	w.setEntry("k", e)
	w.db.set("new")
	testenv.Eventually(t, "a new value", func() bool {
		got, err := cache.FetchResult(t.Context(), c, "k", w.db.read, policy)
		return err == nil && got.Value == "new" && !got.Stale
	})
}

// A sliding value lives on while it is read, and has a hard end.
func TestSliding(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c, other := w.cache(cache.Config{}), w.cache(cache.Config{})
	policy := cache.Sliding(time.Minute, time.Hour)
	wantFetch(t, "first", c, "k", w.db.read, policy, "old", cache.FromLoader)
	must(t, w.client.PExpire(t.Context(), "k", 10*time.Second).Err())
	wantFetch(t, "read", other, "k", w.db.read, policy, "old", cache.FromRedis)
	if ttl := w.client.PTTL(t.Context(), "k").Val(); ttl < 40*time.Second {
		t.Errorf("the entry lives for %v after it was read", ttl)
	}
	must(t, w.client.PExpire(t.Context(), "k", 10*time.Second).Err())
	wantFetch(t, "read again", other, "k", w.db.read, policy, "old", cache.FromRedis)
	if ttl := w.client.PTTL(t.Context(), "k").Val(); ttl > 10*time.Second {
		t.Errorf("prolonged twice within a quarter of its time: %v", ttl)
	}
	w.age("k", 2*time.Hour)
	wantFetch(t, "after its hard end", c, "k", w.db.read, policy, "old", cache.FromLoader)
}
