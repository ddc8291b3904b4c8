package cache_test

import (
	"context"
	"errors"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/unstale/unstale/cache"
	"github.com/unstale/unstale/internal/testenv"
)

// A verdict is a Checker whose answer the test sets.
type verdict struct {
	mu      sync.Mutex
	settled bool
	left    time.Duration
	err     error
	asked   int
}

func (v *verdict) Settled(context.Context) (bool, time.Duration, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.asked++
	return v.settled, v.left, v.err
}

// staleWorld has a process whose memory and Redis hold the old value under "k", while the row is
// new already: the worker has not come yet.
func staleWorld(t *testing.T) (*world, *cache.Cache) {
	t.Helper()
	w := newWorld(t)
	memory := memoryOf("c:" + t.Name())
	memory.Sources, memory.MaxStaleness = nil, time.Minute
	c := w.cache(cache.Config{Memory: memory})
	open(t, c)
	wantFetch(t, "before", c, "k", w.db.read, nil, "old", cache.FromLoader)
	wantFetch(t, "before", c, "k", w.db.read, nil, "old", cache.FromMemory)
	w.db.set("new")
	return w, c
}

// The value that a caller gets depends on whether its writes are settled, in every function that
// reads.
func TestAfter(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		settled bool
		left    time.Duration
		err     error
		from    cache.Source
	}{
		{"not settled", false, time.Minute, nil, cache.FromLoader},
		{"settled", true, time.Minute, nil, cache.FromRedis},
		{"too long ago", false, 0, nil, cache.FromMemory},
		{"nobody knows", false, 0, errors.New("away"), cache.FromLoader},
		{"dead", false, time.Minute, errors.New("dead"), cache.FromLoader},
	} {
		want := "old"
		if c.from == cache.FromLoader {
			want = "new"
		}
		check := func() *verdict { return &verdict{settled: c.settled, left: c.left, err: c.err} }
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w, p := staleWorld(t)
			_, err := cache.GetAfter[string](t.Context(), p, "k", check())
			if missed := errors.Is(err, cache.ErrMiss); missed != (c.from == cache.FromLoader) {
				t.Errorf("get: %v", err)
			}
			wantFetch(t, "fetch", p, "k", w.db.read, cache.Moderate.After(check()), want, c.from)
			if n := p.Statistics().Unsettled; (n > 0) != (c.from == cache.FromLoader) {
				t.Errorf("%d calls were not settled", n)
			}
		})
		t.Run(c.name+", many", func(t *testing.T) {
			t.Parallel()
			w, p := staleWorld(t)
			verdict, loads := check(), 0
			load := func(ctx context.Context, keys []string) (map[string]string, error) {
				loads++
				values := map[string]string{}
				for _, key := range keys {
					values[key], _ = w.db.read(ctx)
				}
				return values, nil
			}
			got, err := cache.FetchMany(t.Context(), p, []string{"k", "l", "m"}, load, (*cache.Policy)(nil).After(verdict))
			wanted := map[string]string{"k": want, "l": "new", "m": "new"}
			if err != nil || !maps.Equal(got, wanted) || verdict.asked != 1 || loads != 1 {
				t.Errorf("got %v, %v with %d loads and %d questions, wanted %v", got, err, loads, verdict.asked, wanted)
			}
		})
	}
}

// A value that is loaded past the old one replaces it, and an invalidation during the load refuses
// it.
func TestAfterStores(t *testing.T) {
	t.Parallel()
	w, c := staleWorld(t)
	policy := cache.Moderate.After(&verdict{left: time.Minute})
	paused := w.db.paused()
	answers := fetchBeside(t, c, "k", paused.load, policy)
	<-paused.read
	w.commit("newer", "k")
	close(paused.release)
	wantAnswer(t, "loaded before the unlink", answers, "new")
	if text := w.stored("k"); text != "" {
		t.Errorf("Redis has %s", text)
	}
	wantFetch(t, "past", c, "k", w.db.read, policy, "newer", cache.FromLoader)
	wantFetch(t, "another process", w.cache(cache.Config{}), "k", w.db.read, nil, "newer", cache.FromRedis)
	w.db.set("newest")
	wantFetch(t, "past it again", c, "k", w.db.read, policy, "newest", cache.FromLoader)
	wantFetch(t, "another process", w.cache(cache.Config{}), "k", w.db.read, nil, "newest", cache.FromRedis)
}

// A load that has begun before is not waited for, in this process or in another: neither its result
// nor its lease.
func TestAfterJoinsNoOlderLoad(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.cache(cache.Config{})
	paused := w.db.paused()
	older := fetchBeside(t, c, "k", paused.load, nil)
	<-paused.read
	w.db.set("new")
	policy := cache.Moderate.After(&verdict{left: time.Minute})
	for name, c := range map[string]*cache.Cache{"this process": c, "another": w.cache(cache.Config{})} {
		wantFetch(t, name, c, "k", w.db.read, policy, "new", cache.FromLoader)
		got, err := cache.FetchMany(t.Context(), c, []string{"k"}, func(ctx context.Context, _ []string) (map[string]string, error) {
			value, err := w.db.read(ctx)
			return map[string]string{"k": value}, err
		}, policy)
		if err != nil || got["k"] != "new" {
			t.Errorf("many, %s: %v, %v", name, got, err)
		}
	}
	close(paused.release)
	wantAnswer(t, "the older one", older, "old")
}

// While Redis is unavailable, a load does not answer callers that came after it had begun. They
// wait for it and share the next one.
func TestWithoutRedisLatecomersShareTheNextLoad(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := &database{value: "old"}
		c := newCache(t, cache.Config{})
		paused := db.paused()
		older := fetchBeside(t, c, "k", paused.load, nil)
		<-paused.read
		db.set("new")
		after := fetchBeside(t, c, "k", db.read, cache.Moderate.After(&verdict{settled: true, left: time.Minute}))
		others := make([]<-chan answer, 20)
		for i := range others {
			others[i] = fetchBeside(t, c, "k", db.read, nil)
		}
		synctest.Wait() // until all wait for the older one
		close(paused.release)
		wantAnswer(t, "settled", after, "new")
		for _, other := range others {
			wantAnswer(t, "without a Checker", other, "new")
		}
		wantAnswer(t, "the older one", older, "old")
		if n := c.Statistics().Loads; n != 2 {
			t.Errorf("%d loads, wanted 2", n)
		}
	})
}

// If the loader fails, no old value is returned. A closed cache or an ended context is an error as
// usual.
func TestAfterFails(t *testing.T) {
	t.Parallel()
	_, c := staleWorld(t)
	broken := errors.New("broken")
	policy := cache.MustPolicy(cache.Options{TTL: time.Minute, StaleOnError: time.Minute}).After(&verdict{left: time.Minute})
	fail := func(context.Context) (string, error) { return "", broken }
	_, err := cache.Fetch(t.Context(), c, "k", fail, policy)
	wantError(t, "loader", err, broken)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = cache.Fetch(ctx, c, "k", fail, policy)
	wantError(t, "context", err, context.Canceled)
	testenv.Must(t, c.Close())
	_, err = cache.Fetch(t.Context(), c, "k", fail, policy)
	wantError(t, "closed", err, cache.ErrClosed)
}
