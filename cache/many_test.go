package cache_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/unstale/unstale/cache"
	"github.com/unstale/unstale/cache/cachetest"
	"github.com/unstale/unstale/internal/testenv"
)

// manyOf loads all keys except those that begin with "no", and records its arguments.
func manyOf(asked *[][]string, version string) func(context.Context, []string) (map[string]string, error) {
	return func(_ context.Context, keys []string) (map[string]string, error) {
		*asked = append(*asked, slices.Sorted(slices.Values(keys)))
		found := map[string]string{}
		for _, key := range keys {
			if !strings.HasPrefix(key, "no") {
				found[key] = key + version
			}
		}
		return found, nil
	}
}

func TestFetchMany(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.cache(cache.Config{Prefix: "p:"})
	var asked [][]string
	var verbs []string
	watched := w.cache(cache.Config{Prefix: "p:", Hooks: cache.Hooks{Redis: func(ctx context.Context, verb string) (context.Context, func(error)) {
		verbs = append(verbs, verb)
		return ctx, nil
	}}})
	policy := cache.Moderate.Tagged("t")
	want := map[string]string{"a": "a1", "b": "b1", "{x}y": "{x}y1", "z}": "z}1"}
	got, err := cache.FetchMany(t.Context(), c, []string{"a", "b", "a", "no", "{x}y", "z}"}, manyOf(&asked, "1"), policy)
	if err != nil || !maps.Equal(got, want) || fmt.Sprint(asked) != "[[a b no z} {x}y]]" {
		t.Errorf("%v, %v, asked %v", got, err, asked)
	}
	asked = nil
	got, err = cache.FetchMany(t.Context(), watched, []string{"a", "b", "no", "{x}y"}, manyOf(&asked, "2"), policy)
	if err != nil || len(got) != 3 || got["a"] != "a1" || asked != nil || fmt.Sprint(verbs) != "[read]" {
		t.Errorf("%v, %v, asked %v, %v", got, err, asked, verbs)
	}
	w.unlink("p:b")
	verbs = nil
	got, err = cache.FetchMany(t.Context(), watched, []string{"a", "b", "c"}, manyOf(&asked, "3"), policy)
	if err != nil || got["a"] != "a1" || got["b"] != "b3" || got["c"] != "c3" || fmt.Sprint(asked) != "[[b c]]" || fmt.Sprint(verbs) != "[read lease fill]" {
		t.Errorf("%v, %v, asked %v, %v", got, err, asked, verbs)
	}
	testenv.Must(t, c.DeleteTag(t.Context(), "t"))
	asked = nil
	_, err = cache.FetchMany(t.Context(), c, []string{"a", "b"}, manyOf(&asked, "4"), policy)
	if err != nil || fmt.Sprint(asked) != "[[a b]]" {
		t.Errorf("%v, asked %v", err, asked)
	}
}

// The race of FetchMany: values that were loaded before an invalidation are not stored after it,
// other values are, and it waits for loads of other callers.
func TestFetchManyIsRaced(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c, other := w.cache(cache.Config{}), w.cache(cache.Config{})
	p := w.db.paused()
	foreign := fetchBeside(t, other, "elsewhere", p.load, nil)
	<-p.read
	var asked [][]string
	load := manyOf(&asked, "old")
	got, err := cache.FetchMany(t.Context(), c, []string{"a", "b", "elsewhere"}, func(ctx context.Context, keys []string) (map[string]string, error) {
		w.unlink("b")
		close(p.release)
		return load(ctx, keys)
	}, nil)
	wantAnswer(t, "elsewhere", foreign, "old")
	if err != nil || got["a"] != "aold" || got["b"] != "bold" || got["elsewhere"] != "old" || fmt.Sprint(asked) != "[[a b]]" {
		t.Errorf("%v, %v, asked %v", got, err, asked)
	}
	if w.stored("a") == "" || w.stored("b") != "" {
		t.Errorf("Redis holds %q and %q", w.stored("a"), w.stored("b"))
	}
}

func TestFetchManyFails(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.cache(cache.Config{Lease: time.Hour, HardTimeout: 50 * time.Millisecond})
	stop := make(chan struct{})
	_, err := cache.FetchMany(t.Context(), c, []string{"a"}, func(context.Context, []string) (map[string]string, error) {
		<-stop
		return nil, nil
	}, nil)
	wantError(t, "a load that hangs", err, cache.ErrLoadTimeout)
	w.noLease("a")
	close(stop)
	_, err = cache.FetchMany(t.Context(), c, []string{"a"}, func(context.Context, []string) (map[string]string, error) {
		return nil, context.DeadlineExceeded
	}, nil)
	wantError(t, "a load that fails", err, context.DeadlineExceeded)
	w.noLease("a")
	var asked [][]string
	got, err := cache.FetchMany(t.Context(), w.cache(cache.Config{}), []string{"a"}, manyOf(&asked, "1"), nil)
	if err != nil || got["a"] != "a1" {
		t.Errorf("%v, %v", got, err)
	}
}

// Expired values are given out, and loaded again in one call behind the caller's back.
func TestFetchManyStale(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.cache(cache.Config{})
	policy := cache.MustPolicy(cache.Options{TTL: time.Minute, Stale: time.Hour})
	var asked [][]string
	_, err := cache.FetchMany(t.Context(), c, []string{"a", "b"}, manyOf(&asked, "1"), policy)
	testenv.Must(t, err)
	w.age("a", 2*time.Minute)
	var again [][]string
	got, err := cache.FetchMany(t.Context(), c, []string{"a", "b"}, manyOf(&again, "2"), policy)
	if err != nil || got["a"] != "a1" || got["b"] != "b1" {
		t.Errorf("%v, %v", got, err)
	}
	testenv.Eventually(t, "the new value", func() bool {
		got, err := cache.Get[string](t.Context(), c, "a")
		return err == nil && got == "a2"
	})
}

// Expired values replace a failed load if each key has one that was not invalidated meanwhile.
func TestFetchManyStaleOnError(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.cache(cache.Config{LoadPause: -1})
	policy := cache.MustPolicy(cache.Options{TTL: time.Minute, Stale: -1, StaleOnError: time.Hour})
	var asked [][]string
	_, err := cache.FetchMany(t.Context(), c, []string{"a", "b", "no"}, manyOf(&asked, "1"), policy)
	testenv.Must(t, err)
	w.age("a", 2*time.Minute)
	w.age("b", 2*time.Minute)
	broken := errors.New("the database is away")
	during := func() {}
	load := func(context.Context, []string) (map[string]string, error) { during(); return nil, broken }
	got, err := cache.FetchMany(t.Context(), c, []string{"a", "b", "no"}, load, policy)
	if err != nil || !maps.Equal(got, map[string]string{"a": "a1", "b": "b1"}) {
		t.Errorf("got %v, %v", got, err)
	}
	_, err = cache.FetchMany(t.Context(), c, []string{"a", "c"}, load, policy)
	wantError(t, "one without a value", err, broken)
	_, err = cache.FetchMany(t.Context(), c, []string{"a", "b"}, func(context.Context, []string) (map[string]string, error) { return nil, cache.ErrNotFound }, policy)
	wantError(t, "rows that are gone", err, cache.ErrNotFound)
	during = func() { w.unlink("b") }
	_, err = cache.FetchMany(t.Context(), c, []string{"a", "b"}, load, policy)
	wantError(t, "one that is invalidated", err, broken)
}

// The result of the loader of the same call counts, and no older value: here the key is gone, while
// another process has the lease of the other key, whose load then fails.
func TestFetchManyBridgesWhatIsUnknown(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c, other := w.cache(cache.Config{}), w.cache(cache.Config{})
	policy := cache.MustPolicy(cache.Options{TTL: time.Minute, Stale: -1, StaleOnError: time.Hour, NegativeTTL: -1})
	var asked [][]string
	_, err := cache.FetchMany(t.Context(), c, []string{"a", "b"}, manyOf(&asked, "1"), policy)
	testenv.Must(t, err)
	w.age("a", 2*time.Minute)
	w.age("b", 2*time.Minute)
	lease, err := other.Lease(t.Context(), "b", policy)
	testenv.Must(t, err)
	got, err := cache.FetchMany(t.Context(), c, []string{"a", "b"}, func(_ context.Context, keys []string) (map[string]string, error) {
		if slices.Contains(keys, "a") {
			lease.Release(t.Context())
			return nil, nil
		}
		return nil, errors.New("the database is away")
	}, policy)
	if err != nil || !maps.Equal(got, map[string]string{"b": "b1"}) {
		t.Errorf("got %v, %v", got, err)
	}
}

// The caller's deadline is its own: the loader has not taken too long.
func TestFetchManyAtItsDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := cachetest.New(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := cache.FetchMany(ctx, c, []string{"k"}, func(ctx context.Context, _ []string) (map[string]string, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}, nil)
		if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, cache.ErrLoadTimeout) {
			t.Errorf("got %v", err)
		}
	})
}

// In Cluster the keys of one call lie on several nodes.
func TestCluster(t *testing.T) {
	t.Parallel()
	cluster := testenv.OwnCluster(t, 3, false)
	w := worldAt(t, cluster.URL())
	w.client = cluster.Direct[0]
	c := newCache(t, cache.Config{Redis: cluster.Client})
	var keys []string
	for i := range 30 {
		keys = append(keys, fmt.Sprint("k", i))
	}
	policy := cache.Moderate.Tagged("t", "u")
	for round, want := range []int{1, 1, 2} {
		if round == 2 {
			w.unlink("stamp:u")
		}
		var asked [][]string
		if round == 0 || round == 2 {
			got, err := cache.FetchMany(t.Context(), c, keys, manyOf(&asked, fmt.Sprint(want)), policy)
			if err != nil || len(got) != 30 || len(asked) != 1 {
				t.Errorf("round %d: %v, %v, %d loads", round, got, err, len(asked))
			}
		}
		for _, key := range keys {
			wantFetch(t, key, c, key, w.db.read, policy, fmt.Sprint(key, want), cache.FromRedis)
		}
	}
	p := w.db.paused()
	early := fetchBeside(t, c, "raced", p.load, policy)
	<-p.read
	w.commit("new", "raced")
	close(p.release)
	wantAnswer(t, "the caller from before", early, "old")
	wantFetch(t, "the caller from after", c, "raced", w.db.read, policy, "new", cache.FromLoader)
	testenv.Must(t, c.Delete(t.Context(), append(keys, "raced")...))
	wantFetch(t, "deleted", c, "k1", w.db.read, policy, "new", cache.FromLoader)
}

// FetchMany releases its leases if anything keeps it from storing its values. Otherwise callers
// would wait for them.
func TestFetchManyGivesLeasesBack(t *testing.T) {
	t.Parallel()
	w := worldAt(t, testenv.OwnRedis(t).URL())
	c := w.cache(cache.Config{Lease: time.Hour, HardTimeout: time.Minute})
	for name, during := range map[string]func(ctx context.Context) error{
		"skipped": func(ctx context.Context) error { cache.FillFrom(ctx).Skip(); return nil },
		"held": func(ctx context.Context) error {
			return w.client.Set(ctx, "lock:hold:{a}", "h", time.Minute).Err()
		},
		"no memory": func(ctx context.Context) error { return w.client.ConfigSet(ctx, "maxmemory", "1").Err() },
	} {
		var asked [][]string
		load := manyOf(&asked, "1")
		got, err := cache.FetchMany(t.Context(), c, []string{"a"}, func(ctx context.Context, keys []string) (map[string]string, error) {
			if lease := w.stored("lock:fill:{a}"); lease == "" {
				t.Errorf("%s: no lease during the load", name)
			}
			testenv.Must(t, during(ctx))
			return load(ctx, keys)
		}, nil)
		if err != nil || got["a"] != "a1" || w.stored("a") != "" || w.stored("lock:fill:{a}") != "" {
			t.Errorf("%s: %v, %v, Redis holds %q and the lease %q", name, got, err, w.stored("a"), w.stored("lock:fill:{a}"))
		}
		testenv.Must(t, w.client.ConfigSet(t.Context(), "maxmemory", "0").Err())
		testenv.Must(t, w.client.FlushDB(t.Context()).Err())
	}
}

// Thousands of keys in one call get one load. They are sent in several pipelines, each within
// Timeout.
func TestFetchManyOfThousands(t *testing.T) {
	t.Parallel()
	w, sent := newWorld(t), &journal{}
	c := w.cache(cache.Config{Hooks: cache.Hooks{Redis: sent.hook}})
	keys := make([]string, 1_700)
	for i := range keys {
		keys[i] = fmt.Sprint("k", i)
	}
	loads := 0
	for _, want := range []map[string]int{{"read": 4, "lease": 4, "fill": 4}, {"read": 4}} {
		verbs := map[string]int{}
		for _, verb := range sent.since(func() {
			got, err := cache.FetchMany(t.Context(), c, keys, func(_ context.Context, keys []string) (map[string]string, error) {
				loads++
				values := map[string]string{}
				for _, key := range keys {
					values[key] = key + "'s"
				}
				return values, nil
			}, cache.Moderate.Tagged("t"))
			if err != nil || len(got) != len(keys) || got["k1699"] != "k1699's" {
				t.Errorf("%d values, %v", len(got), err)
			}
		}) {
			verbs[verb]++
		}
		if !maps.Equal(verbs, want) {
			t.Errorf("sent %v, wanted %v", verbs, want)
		}
	}
	if s := c.Statistics(); loads != 1 || s.Sets != 1_700 || s.L2Hits != 1_700 {
		t.Errorf("%d loads, %+v", loads, s)
	}
	_, err := cache.FetchMany(t.Context(), c, []string{"a", "b"}, func(context.Context, []string) (map[string]string, error) { return nil, context.Canceled }, nil)
	wantError(t, "a load that fails", err, context.Canceled)
	for _, key := range []string{"a", "b"} {
		if text := w.stored("lock:fill:{" + key + "}"); text != "" {
			t.Errorf("the lease of %s is still there", key)
		}
	}
}

// An expired value is reloaded in the background only under a lease, since the result of a load
// that cannot be stored would be useless. It is reloaded once per key and process, for any number
// of callers.
func TestFetchManyRefreshesOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, sent := cachetest.NewStore(t), &journal{}
		c := store.Cache(cache.Config{Hooks: cache.Hooks{Redis: sent.hook}})
		policy := cache.MustPolicy(cache.Options{TTL: time.Minute, Stale: time.Hour})
		var asked [][]string
		stale := func(what string, load func(context.Context, []string) (map[string]string, error), want map[string]string, verbs string) {
			t.Helper()
			sent := sent.since(func() {
				got, err := cache.FetchMany(t.Context(), c, slices.Collect(maps.Keys(want)), load, policy)
				if err != nil || !maps.Equal(got, want) {
					t.Errorf("%s: got %v, %v, wanted %v", what, got, err, want)
				}
				synctest.Wait()
			})
			if fmt.Sprint(sent) != verbs {
				t.Errorf("%s: sent %v, wanted %s", what, sent, verbs)
			}
		}
		stale("first", manyOf(&asked, "1"), map[string]string{"a": "a1", "b": "b1"}, "[read lease fill]")
		store.Advance(2 * time.Minute)
		held := store.Cache(cache.Config{}) // the tombstone is a key like any other
		wantFetch(t, "tombstone", held, "lock:hold:{a}", (&database{value: "held"}).read, nil, "held", cache.FromLoader)
		asked = nil
		stale("a is held", manyOf(&asked, "2"), map[string]string{"a": "a1", "b": "b1"}, "[read lease fill]")
		if fmt.Sprint(asked) != "[[b]]" {
			t.Errorf("loads of %v, wanted one of b", asked)
		}
		testenv.Must(t, held.Delete(t.Context(), "lock:hold:{a}"))

		release := make(chan struct{})
		slow := func(ctx context.Context, keys []string) (map[string]string, error) {
			<-release
			return manyOf(&asked, "3")(ctx, keys)
		}
		stale("one refresh", slow, map[string]string{"a": "a1"}, "[read lease]")
		stale("while it runs", slow, map[string]string{"a": "a1"}, "[read]")
		close(release)
		synctest.Wait()
		stale("then", slow, map[string]string{"a": "a3"}, "[read]")

		store.Advance(2 * time.Minute)
		hold := make(chan struct{})
		got, err := cache.Fetch(t.Context(), c, "a", func(context.Context) (string, error) { <-hold; return "a4", nil }, policy)
		if err != nil || got != "a3" {
			t.Errorf("Fetch: %v, %v", got, err)
		}
		synctest.Wait()
		stale("while Fetch refreshes", slow, map[string]string{"a": "a3"}, "[read]")
		close(hold)
		synctest.Wait()
		store.Advance(2 * time.Minute)
		stale("again", manyOf(&asked, "5"), map[string]string{"a": "a4"}, "[read lease fill]")
		stale("at last", slow, map[string]string{"a": "a5"}, "[read]")
	})
}

// Close ends the wait for a key that another process loads.
func TestFetchManyWaitsUntilClose(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := cachetest.NewStore(t)
		c, other := store.Cache(cache.Config{}), store.Cache(cache.Config{})
		lease, err := other.Lease(t.Context(), "k", nil)
		testenv.Must(t, err)
		defer lease.Release(t.Context())
		begun, errs := time.Now(), make(chan error, 1)
		go func() {
			_, err := cache.FetchMany(t.Context(), c, []string{"k"}, manyOf(new([][]string), "1"), nil)
			errs <- err
		}()
		synctest.Wait()
		testenv.Must(t, c.Close())
		wantError(t, "after Close", <-errs, cache.ErrClosed)
		if waited := time.Since(begun); waited != 0 { // by the bubble's clock
			t.Errorf("it waited for %v", waited)
		}
	})
}

// Close waits until FetchMany has given its leases back: the client may be closed next.
func TestCloseGivesLeasesOfManyBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := cachetest.NewStore(t)
		other := store.Cache(cache.Config{})
		c := store.Cache(cache.Config{Hooks: cache.Hooks{Redis: func(ctx context.Context, verb string) (context.Context, func(error)) {
			if verb == "release" {
				// by the bubble's clock: after all that does not wait for it
				time.Sleep(10 * time.Millisecond)
			}
			return ctx, nil
		}}})
		errs := make(chan error, 1)
		go func() {
			_, err := cache.FetchMany(t.Context(), c, []string{"k"}, func(ctx context.Context, _ []string) (map[string]string, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			}, nil)
			errs <- err
		}()
		synctest.Wait()
		testenv.Must(t, c.Close())
		lease, err := other.Lease(t.Context(), "k", nil)
		if err != nil {
			t.Errorf("after Close: %v", err)
		} else {
			lease.Release(t.Context())
		}
		wantError(t, "FetchMany", <-errs, cache.ErrClosed)
	})
}

// The version of a tag that only the loader names is read once for all keys, and counts as for one
// key: if it was seen before the load and did not change.
func TestFetchManyReadsLateTagsOnce(t *testing.T) {
	t.Parallel()
	store, sent := cachetest.NewStore(t), &journal{}
	c := store.Cache(cache.Config{Hooks: cache.Hooks{Redis: sent.hook}})
	for _, round := range []struct {
		during func()
		verbs  string
	}{
		{func() {}, "[read lease stamps release]"}, // the tag version was not seen before
		{func() { store.InvalidateTags("late") }, "[read lease stamps release]"},
		{func() {}, "[read lease stamps fill]"},
		{func() {}, "[read stamps]"},
	} {
		verbs := sent.since(func() {
			got, err := cache.FetchMany(t.Context(), c, []string{"a", "b", "no"}, func(ctx context.Context, keys []string) (map[string]string, error) {
				round.during()
				cache.FillFrom(ctx).Tag("late")
				return manyOf(new([][]string), "1")(ctx, keys)
			}, nil)
			if err != nil || len(got) != 2 {
				t.Errorf("got %v, %v", got, err)
			}
		})
		if fmt.Sprint(verbs) != round.verbs {
			t.Errorf("sent %v, wanted %s", verbs, round.verbs)
		}
	}
	store.InvalidateTags("late")
	if got, err := cache.Get[string](t.Context(), c, "a"); !errors.Is(err, cache.ErrMiss) {
		t.Errorf("after its tag is gone: %q, %v", got, err)
	}
}
