package cache_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/unstale/unstale/cache"
	"github.com/unstale/unstale/internal/testenv"
)

// A load that stores nothing removes the value that was read before it: no caller gets the old value
// again, not even when a later load fails.
func TestLoadsThatStoreNothingRemoveTheOldValue(t *testing.T) {
	t.Parallel()
	policy := cache.MustPolicy(cache.Options{TTL: time.Minute, Stale: time.Hour, StaleOnError: time.Hour, NegativeTTL: -1})
	w := newWorld(t)
	loads := map[string]cache.Loader[any]{
		"not found": func(context.Context) (any, error) { return nil, cache.ErrNotFound },
		"Skip":      func(ctx context.Context) (any, error) { cache.FillFrom(ctx).Skip(); return "new", nil },
		"TTL":       func(ctx context.Context) (any, error) { cache.FillFrom(ctx).TTL(0); return "new", nil },
		"no tag":    func(ctx context.Context) (any, error) { cache.FillFrom(ctx).Tag(""); return "new", nil },
		"refused":   func(ctx context.Context) (any, error) { cache.FillFrom(ctx).Tag("a}{b"); return "new", nil },
		"new tag":   func(ctx context.Context) (any, error) { cache.FillFrom(ctx).Tag("unseen"); return "new", nil },
		"no JSON":   func(context.Context) (any, error) { return func() {}, nil },
	}
	calls := map[string]func(c *cache.Cache, key string, load cache.Loader[any]) (any, error){
		"Fetch": func(c *cache.Cache, key string, load cache.Loader[any]) (any, error) {
			return cache.Fetch(t.Context(), c, key, load, policy)
		},
		"FetchMany": func(c *cache.Cache, key string, load cache.Loader[any]) (any, error) {
			got, err := cache.FetchMany(t.Context(), c, []string{key}, func(ctx context.Context, _ []string) (map[string]any, error) {
				value, err := load(ctx)
				if errors.Is(err, cache.ErrNotFound) {
					return nil, nil
				}
				return map[string]any{key: value}, err
			}, policy)
			if _, found := got[key]; !found && err == nil {
				err = cache.ErrNotFound
			}
			return got[key], err
		},
	}
	old := func(context.Context) (any, error) { return "old", nil }
	broken := errors.New("the database is away")
	fail := func(context.Context) (any, error) { return nil, broken }
	for call, fetch := range calls {
		c := w.cache(cache.Config{Prefix: call + ":"})
		for name, load := range loads {
			_, err := fetch(c, name, old)
			testenv.Must(t, err)
			w.age(call+":"+name, 2*time.Minute)
			if got, err := fetch(c, name, load); err != nil || got != "old" {
				t.Errorf("%s, %s: %v, %v while the load runs", call, name, got, err)
			}
			testenv.Eventually(t, call+", "+name+": the old value to go", func() bool { return w.stored(call+":"+name) == "" })
			w.noLease(call + ":" + name)
			if got, err := fetch(c, name, fail); !errors.Is(err, broken) {
				t.Errorf("%s, %s: %v, %v after the load", call, name, got, err)
			}
		}
	}
}

// Without the lease, nothing is removed.
func TestLoadsWithoutALeaseRemoveNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	policy := cache.MustPolicy(cache.Options{TTL: time.Minute, Stale: -1, StaleOnError: time.Hour, NegativeTTL: -1})
	c := w.cache(cache.Config{})
	wantFetch(t, "first", c, "k", w.db.read, policy, "old", cache.FromLoader)
	w.age("k", 2*time.Minute)
	_, err := cache.Fetch(t.Context(), c, "k", func(ctx context.Context) (string, error) {
		w.unlink("k")
		_, err := cache.Fetch(ctx, w.cache(cache.Config{}), "k", w.db.read, policy)
		return "", errors.Join(err, cache.ErrNotFound)
	}, policy)
	wantError(t, "Fetch", err, cache.ErrNotFound)
	wantFetched(t, "the newer value", c, "k", w.db.read, "old")
	if w.stored("k") == "" {
		t.Error("the value of another load was removed")
	}
}

// A load that stores nothing removes the old value from L1 too, here one that a token asks for.
func TestLoadsThatStoreNothingEmptyMemory(t *testing.T) {
	t.Parallel()
	w, c := staleWorld(t)
	token := &verdict{left: time.Minute}
	_, err := cache.Fetch(t.Context(), c, "k", func(context.Context) (string, error) { return "", cache.ErrNotFound },
		cache.MustPolicy(cache.Options{TTL: time.Hour, NegativeTTL: -1}).After(token))
	wantError(t, "Fetch", err, cache.ErrNotFound)
	wantFetched(t, "afterwards", c, "k", w.db.read, "new")
}
