package cache_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/unstale/unstale/cache"
)

// Every requested key is one request, with any outcome.
func TestRequests(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.cache(cache.Config{Memory: cache.Memory{Size: 10, Channel: "c:" + t.Name(), MaxStaleness: time.Minute}})
	open(t, c)
	load := func(context.Context) (string, error) { return "5", nil }
	many := func(_ context.Context, keys []string) (map[string]string, error) {
		return map[string]string{"m": "5"}, nil
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for _, e := range []struct {
		what                string
		call                func()
		memory, redis, miss uint64
	}{
		{"a miss", func() { _, _ = cache.Fetch(t.Context(), c, "k", load, nil) }, 0, 0, 1},
		{"a hit", func() { _, _ = cache.Fetch(t.Context(), c, "k", load, nil) }, 1, 0, 0},
		{"Get", func() { _, _ = cache.Get[string](t.Context(), c, "k") }, 1, 0, 0},
		{"another type in memory", func() {
			_, _ = cache.Fetch(t.Context(), c, "k", func(context.Context) (json.Number, error) { return "5", nil }, nil)
		}, 0, 1, 0},
		{"a context that is over", func() { _, _ = cache.Fetch(over, c, "other", load, nil) }, 0, 0, 1},
		{"Get, with a context that is over", func() { _, _ = cache.Get[string](over, c, "other") }, 0, 0, 1},
		{"past all values", func() { _, _ = cache.Fetch(t.Context(), c, "k", load, cache.Moderate.After(unsettled{})) }, 0, 0, 1},
		{"three keys", func() { _, _ = cache.FetchMany(t.Context(), c, []string{"m", "none", "n", "m"}, many, nil) }, 0, 0, 3},
		{"two keys, with a context that is over", func() { _, _ = cache.FetchMany(over, c, []string{"x", "y"}, many, nil) }, 0, 0, 2},
		{"past all values, with a context that is over", func() { _, _ = cache.Fetch(over, c, "other", load, cache.Moderate.After(unsettled{})) }, 0, 0, 1},
		{"two keys past all values, with a context that is over", func() { _, _ = cache.FetchMany(over, c, []string{"x", "y"}, many, cache.Moderate.After(unsettled{})) }, 0, 0, 2},
		{"GetAfter, with a context that is over", func() { _, _ = cache.GetAfter[string](over, c, "other", unsettled{}) }, 0, 0, 1},
	} {
		before := c.Statistics()
		e.call()
		s := c.Statistics()
		if s.L1Hits-before.L1Hits != e.memory || s.L2Hits-before.L2Hits != e.redis || s.Misses-before.Misses != e.miss {
			t.Errorf("%s: before %+v, then %+v", e.what, before, s)
		}
	}
}

// unsettled is a Checker of writes that are not settled.
type unsettled struct{}

func (unsettled) Settled(context.Context) (bool, time.Duration, error) {
	return false, time.Minute, nil
}
