package cache_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/unstale/unstale/cache"
	"github.com/unstale/unstale/cache/cachetest"
	"github.com/unstale/unstale/internal/testenv"
)

// A loader that fetches its own key, itself or by the loader of another key, gets an error
// immediately: it would wait for itself, or call itself without end.
func TestLoaderFetchesItsOwnKey(t *testing.T) {
	t.Parallel()
	type fetch func(ctx context.Context, c *cache.Cache, key string, load func(context.Context) error) error
	one := func(p *cache.Policy) fetch {
		return func(ctx context.Context, c *cache.Cache, key string, load func(context.Context) error) error {
			_, err := cache.Fetch(ctx, c, key, func(ctx context.Context) (string, error) { return "v", load(ctx) }, p)
			return err
		}
	}
	many := func(p *cache.Policy) fetch {
		return func(ctx context.Context, c *cache.Cache, key string, load func(context.Context) error) error {
			_, err := cache.FetchMany(ctx, c, []string{"x" + key, key}, func(ctx context.Context, keys []string) (map[string]string, error) {
				return allOf(keys), load(ctx)
			}, p)
			return err
		}
	}
	number := func(ctx context.Context, c *cache.Cache, key string, load func(context.Context) error) error {
		_, err := cache.Fetch(ctx, c, key, func(ctx context.Context) (int, error) { return 1, load(ctx) }, nil)
		return err
	}
	warm := func(ctx context.Context, c *cache.Cache, key string, load func(context.Context) error) error {
		keys := func(yield func(string) bool) { yield(key) }
		_, err := cache.Warm(ctx, c, keys, func(ctx context.Context, _ string) (string, error) { return "v", load(ctx) }, nil, cache.WarmOptions{})
		return err
	}
	unsettled := cache.Moderate.After(&verdict{left: time.Hour})
	single, list := one(nil), many(nil)
	for name, chain := range map[string][]struct {
		key string
		fetch
	}{
		"one":              {{"a", single}, {"a", single}},
		"another type":     {{"a", single}, {"a", number}},
		"one of many":      {{"a", list}, {"a", single}},
		"many of one":      {{"a", single}, {"a", list}},
		"many":             {{"a", list}, {"a", list}},
		"warming":          {{"a", single}, {"a", warm}},
		"warmed":           {{"a", warm}, {"a", single}},
		"by another":       {{"a", single}, {"b", single}, {"a", single}},
		"by many":          {{"a", list}, {"b", single}, {"c", list}, {"a", single}},
		"unsettled":        {{"a", one(unsettled)}, {"a", one(unsettled)}},
		"unsettled of all": {{"a", many(unsettled)}, {"a", many(unsettled)}},
	} {
		for _, away := range []bool{false, true} {
			if away && strings.HasPrefix(name, "warm") {
				continue // Warm loads nothing then
			}
			synctest.Test(t, func(t *testing.T) {
				c := newCache(t, cache.Config{}) // without Redis
				if !away {
					c = cachetest.NewStore(t).Cache(cache.Config{})
				}
				begun, calls := time.Now(), 0
				var next func(at int) func(context.Context) error
				next = func(at int) func(context.Context) error {
					return func(ctx context.Context) error {
						if at >= len(chain) {
							calls++
							return errors.New("a loader has called itself")
						}
						return chain[at].fetch(ctx, c, chain[at].key, next(at+1))
					}
				}
				err := next(0)(t.Context())
				const want = `a": the load of this key waits for this call`
				if err == nil || !strings.Contains(err.Error(), want) || calls > 0 {
					t.Errorf("%s, away %v: got %v after %d calls of the last loader", name, away, err, calls)
				}
				if took := time.Since(begun); took > time.Second { // by the bubble's clock
					t.Errorf("%s, away %v: it took %v", name, away, took)
				}
			})
		}
	}
}

// A loader can fetch its own key while that is cached, and the keys of other loads.
func TestLoaderFetchesWhatIsThere(t *testing.T) {
	t.Parallel()
	store := cachetest.NewStore(t)
	c, policy := store.Cache(cache.Config{}), cache.MustPolicy(cache.Options{TTL: time.Hour, Stale: time.Hour})
	more := func(ctx context.Context) (string, error) {
		old, err := cache.Fetch(ctx, c, "k", func(context.Context) (string, error) { return "", errors.New("it is not there") }, policy)
		return old + "+", err
	}
	wantFetch(t, "first", c, "k", (&database{value: "v"}).read, policy, "v", cache.FromLoader)
	store.Advance(90 * time.Minute)
	wantFetch(t, "stale", c, "k", more, policy, "v", cache.FromRedis)
	for want := ""; want != "v+"; {
		var err error
		want, err = cache.Fetch(t.Context(), c, "k", more, policy)
		testenv.Must(t, err)
	}
	read := func(ctx context.Context) (string, error) {
		got, err := cache.FetchMany(ctx, c, []string{"k", "m"}, func(context.Context, []string) (map[string]string, error) {
			return map[string]string{"m": "n"}, nil
		}, policy)
		return got["k"] + got["m"], err
	}
	wantFetch(t, "other keys", c, "l", read, policy, "v+n", cache.FromLoader)
}
