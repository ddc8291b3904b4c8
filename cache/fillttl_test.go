package cache_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/unstale/unstale/cache"
	"github.com/unstale/unstale/internal/testenv"
)

// A value whose loader has given it a TTL is not given out after that: neither as a stale one, nor
// for a loader that fails.
func TestFillBoundsLife(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.cache(cache.Config{Jitter: 0.2})
	p := cache.MustPolicy(cache.Options{TTL: time.Minute, Stale: time.Hour, StaleOnError: 2 * time.Hour})
	for _, own := range []time.Duration{20 * time.Second, time.Hour} {
		for range 20 {
			testenv.Must(t, c.Delete(t.Context(), "k"))
			wantFetch(t, "load", c, "k", func(ctx context.Context) (string, error) {
				cache.FillFrom(ctx).TTL(own)
				return w.db.read(ctx)
			}, p, "old", cache.FromLoader)
			if left := w.client.PTTL(t.Context(), "k").Val(); left <= 0 || left > own {
				t.Fatalf("an entry with a TTL of %v lives for %v", own, left)
			}
			var e struct{ S, O int64 }
			testenv.Must(t, json.Unmarshal([]byte(w.stored("k")), &e))
			if e.S != 0 || e.O != 0 {
				t.Fatalf("an entry with a TTL of %v is given out until %d and %d", own, e.S, e.O)
			}
		}
	}
}

// A Checker that panics counts as one that fails: its caller gets what is loaded.
func TestCheckerPanics(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.cache(cache.Config{})
	wantFetch(t, "load", c, "k", w.db.read, nil, "old", cache.FromLoader)
	w.db.set("new")
	p := cache.Moderate.After(brokenChecker{})
	wantFetch(t, "one key", c, "k", w.db.read, p, "new", cache.FromLoader)
	_, err := cache.FetchMany(t.Context(), c, []string{"k"}, func(context.Context, []string) (map[string]string, error) { return nil, nil }, p)
	testenv.Must(t, err)
	_, err = cache.GetAfter[string](t.Context(), c, "k", brokenChecker{})
	wantError(t, "GetAfter", err, cache.ErrMiss)
	if n := c.Statistics().Unsettled; n != 3 {
		t.Errorf("%d calls are counted, wanted 3", n)
	}
}

// A brokenChecker has a fault.
type brokenChecker struct{}

func (brokenChecker) Settled(context.Context) (bool, time.Duration, error) { panic("no database") }
