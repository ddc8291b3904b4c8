package cache_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/unstale/unstale/cache"
	"github.com/unstale/unstale/internal/testenv"
)

// manyOf loads all keys but those that begin with "no", and notes what it was asked for.
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
	must(t, c.DeleteTag(t.Context(), "t"))
	asked = nil
	_, err = cache.FetchMany(t.Context(), c, []string{"a", "b"}, manyOf(&asked, "4"), policy)
	if err != nil || fmt.Sprint(asked) != "[[a b]]" {
		t.Errorf("%v, asked %v", err, asked)
	}
}

// The race of FetchMany: what was loaded before an invalidation is not stored after it, the other keys are; and what
// somebody else loads is waited for.
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
	must(t, err)
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
	must(t, c.Delete(t.Context(), append(keys, "raced")...))
	wantFetch(t, "deleted", c, "k1", w.db.read, policy, "new", cache.FromLoader)
}

// Whatever keeps FetchMany from storing what it has loaded, it gives its leases back, so that nobody waits for them.
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
			must(t, during(ctx))
			return load(ctx, keys)
		}, nil)
		if err != nil || got["a"] != "a1" || w.stored("a") != "" || w.stored("lock:fill:{a}") != "" {
			t.Errorf("%s: %v, %v, Redis holds %q and the lease %q", name, got, err, w.stored("a"), w.stored("lock:fill:{a}"))
		}
		must(t, w.client.ConfigSet(t.Context(), "maxmemory", "0").Err())
		must(t, w.client.FlushDB(t.Context()).Err())
	}
}
