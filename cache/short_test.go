package cache_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/cache"
	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/internal/testenv"
)

// Callers with less time than Timeout together detect that Redis is unavailable. Then no commands
// are sent for them.
func TestShortDeadlinesFindRedisAway(t *testing.T) {
	t.Parallel()
	r := testenv.Redis(t)
	options, err := redis.ParseURL(r.URL)
	testenv.Must(t, err)
	link := newLink(t, options.Addr)
	leave := map[string]func(context.Context) (context.Context, context.CancelFunc){
		"deadline": func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, 40*time.Millisecond)
		},
		"cancelled": func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(40*time.Millisecond, cancel)
			return ctx, cancel
		},
	}
	for way, leave := range leave {
		for kind, client := range clientKinds(t, link.Addr()) {
			testShortPatience(t, way+", "+kind, client, link, leave)
		}
	}
}

// testShortPatience runs callers that leave one by one.
func testShortPatience(t *testing.T, name string, client redis.UniversalClient, link *servers.Link, leave func(context.Context) (context.Context, context.CancelFunc)) {
	t.Helper()
	db, sent := &database{value: "old"}, &journal{}
	var c *cache.Cache
	testenv.Eventually(t, "a value in Redis", func() bool {
		if c == nil || c.Healthy() != nil { // a busy Redis counts as away for the whole of a Pause
			c = newCache(t, cache.Config{Redis: client, Timeout: 100 * time.Millisecond, Pause: time.Minute, Prefix: name, Hooks: cache.Hooks{Redis: sent.hook}})
		}
		got, err := cache.FetchResult(t.Context(), c, "k", db.read, nil)
		return err == nil && got.Source == cache.FromRedis
	})
	testenv.Must(t, link.Swallow())
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for range 50 { // these say nothing about Redis
		_, err := cache.Fetch(gone, c, "k", db.read, nil)
		wantError(t, name, err, context.Canceled)
	}
	testenv.Must(t, c.Healthy())
	testenv.Eventually(t, "Redis to count as away", func() bool {
		ctx, cancel := leave(t.Context())
		defer cancel()
		_, _ = cache.Fetch(ctx, c, "k", db.read, nil)
		return c.Healthy() != nil
	})
	wantError(t, name, c.Healthy(), cache.ErrRedisTimeout)
	if verbs := sent.since(func() { wantFetch(t, name, c, "k", db.read, nil, "old", cache.FromLoader) }); len(verbs) > 0 {
		t.Errorf("%s: sent %q", name, verbs)
	}
	link.Calm(t.Context())
}
