package cachetest_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/unstale/unstale/cache"
	"github.com/unstale/unstale/cache/cachetest"
)

// wantFresh checks whether a key has a valid value.
func wantFresh(t *testing.T, c *cache.Cache, key string, want bool) {
	t.Helper()
	if has, err := c.Has(t.Context(), key); has != want || err != nil {
		t.Errorf("has %s: %v, %v, want %v", key, has, err, want)
	}
}

func put(t *testing.T, c *cache.Cache, key string, p *cache.Policy) {
	t.Helper()
	_, err := cache.Fetch(t.Context(), c, key, func(context.Context) (string, error) { return "v", nil }, p)
	if err != nil {
		t.Fatal(err)
	}
}

// Advance expires values immediately, also for caches that have read them before.
func TestAdvance(t *testing.T) {
	t.Parallel()
	store := cachetest.NewStore(t)
	c := store.Cache(cache.Config{})
	put(t, c, "k", cache.MustPolicy(cache.Options{TTL: time.Hour, Stale: -1}))
	store.Advance(48 * time.Minute)
	wantFresh(t, c, "k", true)
	store.Advance(24 * time.Minute)
	wantFresh(t, c, "k", false)
	sliding := cache.Sliding(time.Hour, 10*time.Hour)
	put(t, c, "s", sliding)
	for range 8 {
		store.Advance(48 * time.Minute)
		got, err := cache.FetchResult(t.Context(), c, "s", func(context.Context) (string, error) { return "other", nil }, sliding)
		if err != nil || got.Value != "v" {
			t.Fatalf("%+v, %v", got, err)
		}
	}
	store.Advance(72 * time.Minute)
	wantFresh(t, c, "s", false)
	defer func() {
		if recover() == nil {
			t.Error("time went back")
		}
	}()
	store.Advance(-1)
}

// In a synctest bubble, the store uses the time of the bubble, and Advance is not needed.
func TestSynctest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := cachetest.New(t)
		put(t, c, "k", cache.MustPolicy(cache.Options{TTL: time.Hour, Stale: -1}))
		time.Sleep(48 * time.Minute)
		wantFresh(t, c, "k", true)
		time.Sleep(24 * time.Minute)
		wantFresh(t, c, "k", false)
	})
}

// Patterns take what matches, leases too, and nothing else; tags take their values.
func TestInvalidate(t *testing.T) {
	t.Parallel()
	store := cachetest.NewStore(t)
	c := store.Cache(cache.Config{Prefix: "shop:"})
	for _, key := range []string{"list:1", "list:2", "product:1"} {
		put(t, c, key, cache.Moderate.Tagged("t"))
	}
	l, err := c.Lease(t.Context(), "list:3", nil)
	if err != nil {
		t.Fatal(err)
	}
	store.InvalidatePattern("shop:list:*")
	for key, want := range map[string]bool{"list:1": false, "list:2": false, "product:1": true} {
		wantFresh(t, c, key, want)
	}
	if err := cache.Set(t.Context(), l, "late"); err == nil {
		t.Error("a lease outlived the pattern")
	}
	store.InvalidateTags("t")
	wantFresh(t, c, "product:1", false)
}

// A recorder is a test that records errors.
type recorder struct {
	testing.TB
	text strings.Builder
}

func (r *recorder) Error(args ...any) { r.text.WriteString(fmt.Sprintln(args...)) }

// An unknown command fails the test: otherwise a Cache would treat it as an outage and load.
func TestUnknownCommand(t *testing.T) {
	t.Parallel()
	r := &recorder{TB: t}
	store := cachetest.NewStore(r)
	if err := store.Client().Set(t.Context(), "k", "v", 0).Err(); err == nil || !strings.Contains(r.text.String(), "nothing here understands") {
		t.Errorf("%v, %q", err, r.text.String())
	}
}
