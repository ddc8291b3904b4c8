package cache_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/unstale/unstale/cache"
	"github.com/unstale/unstale/cache/cachetest"
	"github.com/unstale/unstale/internal/testenv"
)

type product struct {
	ID    int
	Name  string
	Price float64
}

func TestFetch(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.cache(cache.Config{Prefix: "shop:"})
	want := product{42, `"خصم" <&>`, 9.5}
	loads := 0
	load := func(context.Context) (product, error) { loads++; return want, nil }
	for i, from := range []cache.Source{cache.FromLoader, cache.FromRedis, cache.FromRedis} {
		got, err := cache.FetchResult(t.Context(), c, "product:42", load, cache.Moderate)
		if err != nil || got.Value != want || got.Source != from || got.Stale {
			t.Errorf("call %d: %+v, %v", i, got, err)
		}
	}
	if loads != 1 {
		t.Errorf("%d loads", loads)
	}
	ttl := w.client.PTTL(t.Context(), "shop:product:42").Val()
	if least, most := 28*time.Minute, 38*time.Minute; ttl < least || ttl > most {
		t.Errorf("the entry lives for %v, wanted %v to %v", ttl, least, most)
	}
	s := c.Statistics()
	if s.TotalRequests != 3 || s.L2Hits != 2 || s.Misses != 1 || s.Sets != 1 || s.Loads != 1 || s.HitRate < 0.66 || s.HitRate > 0.67 {
		t.Errorf("%+v", s)
	}
	testenv.Must(t, c.Healthy())
}

// The TTLs of many entries differ.
func TestJitter(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.cache(cache.Config{})
	policy := cache.MustPolicy(cache.Options{TTL: 1000 * time.Second, Stale: -1})
	least, most := time.Hour, time.Duration(0)
	for i := range 200 {
		key := fmt.Sprint("k", i)
		_, err := cache.Fetch(t.Context(), c, key, w.db.read, policy)
		testenv.Must(t, err)
		ttl := w.client.PTTL(t.Context(), key).Val()
		least, most = min(least, ttl), max(most, ttl)
	}
	if least < 830*time.Second || most > 1151*time.Second || most-least < 150*time.Second {
		t.Errorf("TTLs from %v to %v", least, most)
	}
}

func TestNotFound(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.cache(cache.Config{})
	loads := 0
	load := func(context.Context) (string, error) {
		loads++
		return "", fmt.Errorf("load product: %w", cache.ErrNotFound)
	}
	for range 3 {
		_, err := cache.Fetch(t.Context(), c, "k", load, cache.Moderate)
		wantError(t, "Fetch", err, cache.ErrNotFound)
	}
	_, err := cache.Get[string](t.Context(), c, "k")
	wantError(t, "Get", err, cache.ErrNotFound)
	if ttl := w.client.PTTL(t.Context(), "k").Val(); loads != 1 || ttl < 100*time.Second || ttl > 140*time.Second {
		t.Errorf("%d loads, the entry lives for %v", loads, ttl)
	}
	off := cache.MustPolicy(cache.Options{TTL: time.Minute, NegativeTTL: -1})
	_, err = cache.Fetch(t.Context(), c, "off", load, off)
	wantError(t, "Fetch", err, cache.ErrNotFound)
	if w.stored("off") != "" {
		t.Error("a negative result was stored")
	}
}

// A loader's error reaches the caller, and the next caller does not wait for the lease.
func TestLoaderFails(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.cache(cache.Config{Lease: time.Hour})
	broken := errors.New("the database is away")
	_, err := cache.Fetch(t.Context(), c, "k", func(context.Context) (string, error) { return "", broken }, nil)
	wantError(t, "Fetch", err, broken)
	w.noLease("k")
	_, err = cache.Fetch(t.Context(), c, "k", func(context.Context) (string, error) { panic("oops") }, nil)
	var panicked *cache.PanicError
	if !errors.As(err, &panicked) || panicked.Value != "oops" || !strings.Contains(err.Error(), "fetch_test.go") {
		t.Errorf("a panic became %v", err)
	}
	w.noLease("k")
	wantFetch(t, "then", c, "k", w.db.read, nil, "old", cache.FromLoader)
	wantFetch(t, "then", c, "k", w.db.read, nil, "old", cache.FromRedis)
}

// A loader that hangs costs the hard timeout, even if it does not heed its context, and the
// caller's own deadline counts.
func TestLoaderHangs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.cache(cache.Config{Lease: time.Hour, HardTimeout: 50 * time.Millisecond})
	stop := make(chan struct{})
	hang := func(context.Context) (string, error) { <-stop; return "old", nil }
	_, err := cache.Fetch(t.Context(), c, "k", hang, nil)
	wantError(t, "Fetch", err, cache.ErrLoadTimeout)
	wantError(t, "Fetch", err, context.DeadlineExceeded)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = cache.Fetch(ctx, c, "k2", hang, nil)
	wantError(t, "Fetch of one who left", err, context.Canceled)
	close(stop)
	w.noLease("k")
	wantFetch(t, "then", w.cache(cache.Config{}), "k", w.db.read, nil, "old", cache.FromLoader)
}

// noLease waits until a failed load has released its lease, which it does after it has answered its
// callers.
func (w *world) noLease(key string) {
	w.Helper()
	testenv.Eventually(w, "the lease to be given back", func() bool { return w.stored("lock:fill:{"+key+"}") == "" })
}

// One load serves all concurrent callers, even across two processes.
func TestOneLoad(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, b := w.cache(cache.Config{}), w.cache(cache.Config{})
	p := w.db.paused()
	var all []<-chan answer
	for i := range 1000 {
		all = append(all, fetchBeside(t, []*cache.Cache{a, b}[i%2], "k", p.load, nil))
	}
	<-p.read
	testenv.Eventually(t, "all to have missed", func() bool { return a.Statistics().Misses+b.Statistics().Misses == 1000 })
	close(p.release)
	for i, answers := range all {
		wantAnswer(t, fmt.Sprint("caller ", i), answers, "old")
	}
	if n := w.db.reads.Load(); n != 1 {
		t.Errorf("%d loads", n)
	}
}

// The cap on loads holds, and what waits for its turn is served.
func TestLoadsAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.cache(cache.Config{Loads: 2})
	p := w.db.paused()
	var all []<-chan answer
	for i := range 6 {
		all = append(all, fetchBeside(t, c, fmt.Sprint("k", i), p.load, nil))
	}
	<-p.read
	<-p.read
	testenv.Eventually(t, "all to have missed", func() bool { return c.Statistics().Misses == 6 })
	if n := w.db.reads.Load(); n != 2 {
		t.Errorf("%d loads at once", n)
	}
	close(p.release)
	for _, answers := range all {
		wantAnswer(t, "a caller", answers, "old")
	}
}

// Loaders that fetch already have a slot: as many of them as may run concurrently do not wait for
// each other, even if they fetch several keys at a time and those fetches fetch again. Other
// loaders wait as usual.
func TestNestedLoads(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := cachetest.NewStore(t)
		c, other := store.Cache(cache.Config{Loads: 2}), store.Cache(cache.Config{Prefix: "other:", Loads: 1})
		begun, goOn := make(chan struct{}, 2), make(chan struct{})
		outer := func(i int) <-chan answer {
			return fetchBeside(t, c, fmt.Sprint("outer", i), func(ctx context.Context) (string, error) {
				begun <- struct{}{}
				<-goOn
				many, err := cache.FetchMany(ctx, other, []string{fmt.Sprint("many", i)}, func(ctx context.Context, keys []string) (map[string]string, error) {
					value, err := cache.Fetch(ctx, c, fmt.Sprint("inner", i), func(context.Context) (string, error) { return "v", nil }, nil)
					return map[string]string{keys[0]: value}, err
				}, nil)
				return many[fmt.Sprint("many", i)], err
			}, nil)
		}
		all := []<-chan answer{outer(1), outer(2)}
		<-begun
		<-begun
		third := fetchBeside(t, c, "third", func(context.Context) (string, error) {
			begun <- struct{}{}
			return "v", nil
		}, nil)
		synctest.Wait()
		if len(begun) > 0 {
			t.Error("a third loader runs")
		}
		close(goOn)
		for _, answers := range append(all, third) {
			wantAnswer(t, "a caller", answers, "v")
		}
	})
}

// A loader that has the only slot and joins a load that waits for one does not wait for itself.
func TestLoaderJoinsALoadThatWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := cachetest.NewStore(t).Cache(cache.Config{Loads: 1})
		begun, goOn := make(chan struct{}), make(chan struct{})
		inner := func(context.Context) (string, error) { return "v", nil }
		outer := fetchBeside(t, c, "outer", func(ctx context.Context) (string, error) {
			close(begun)
			<-goOn
			return cache.Fetch(ctx, c, "inner", inner, nil)
		}, nil)
		<-begun
		waiting := fetchBeside(t, c, "inner", inner, nil)
		synctest.Wait()
		close(goOn)
		wantAnswer(t, "the loader", outer, "v")
		wantAnswer(t, "who came before it", waiting, "v")
	})
}

// A key that cannot have a lease, or a tag that cannot have a version, is loaded and not stored.
func TestKeysWithoutLease(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.cache(cache.Config{})
	for _, key := range []string{"", "a}b", "{a}", "a{}b"} {
		for range 2 {
			wantFetch(t, key, c, key, w.db.read, nil, "old", cache.FromLoader)
		}
	}
	wantFetch(t, "tag", c, "k", w.db.read, cache.Moderate.Tagged("a}b"), "old", cache.FromLoader)
	if n := w.client.DBSize(t.Context()).Val(); n != 0 {
		t.Errorf("%d names are in Redis", n)
	}
}

// A loader can decide the TTL, and that nothing is stored.
func TestFillDecides(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.cache(cache.Config{})
	wantFetch(t, "skip", c, "skip", func(ctx context.Context) (string, error) {
		cache.FillFrom(ctx).Skip()
		return "x", nil
	}, nil, "x", cache.FromLoader)
	if w.stored("skip") != "" {
		t.Error("stored in spite of Skip")
	}
	wantFetch(t, "ttl", c, "ttl", func(ctx context.Context) (string, error) {
		cache.FillFrom(ctx).TTL(10 * time.Second)
		return "x", nil
	}, cache.MustPolicy(cache.Options{TTL: time.Hour, Stale: -1}), "x", cache.FromLoader)
	if ttl := w.client.PTTL(t.Context(), "ttl").Val(); ttl > 12*time.Second || ttl < 8*time.Second {
		t.Errorf("the entry lives for %v", ttl)
	}
	var none *cache.Fill
	none.TTL(time.Second)
	none.Tag("a")
	none.Skip()
	if cache.FillFrom(t.Context()) != nil {
		t.Error("a Fill outside a load")
	}
}

// A value of another type under the same key is loaded again.
func TestTypes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.cache(cache.Config{})
	wantFetch(t, "text", c, "k", w.db.read, nil, "old", cache.FromLoader)
	n, err := cache.Fetch(t.Context(), c, "k", func(context.Context) (int, error) { return 7, nil }, nil)
	if n != 7 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	something, err := cache.Fetch[any](t.Context(), c, "nil", func(context.Context) (any, error) { return nil, nil }, nil)
	if something != nil || err != nil {
		t.Errorf("%v, %v", something, err)
	}
	_, err = cache.Fetch(t.Context(), c, "f", func(context.Context) (chan int, error) { return make(chan int), nil }, nil)
	if testenv.Must(t, err); c.Statistics().Errors != 1 {
		t.Errorf("%+v", c.Statistics())
	}
}

// A value of an interface type has one type, wherever it comes from.
func TestInterfaceType(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.cache(cache.Config{Memory: cache.Memory{Size: 10, MaxStaleness: time.Minute}})
	testenv.Eventually(t, "memory to open", func() bool { return c.Healthy() == nil })
	type product struct{ Name string }
	want := map[string]any{"Name": "mug"}
	load := func(context.Context) (any, error) { return product{"mug"}, nil }
	for name, at := range map[string]*cache.Cache{"with memory": c, "without": w.cache(cache.Config{}), "without Redis": newCache(t, cache.Config{})} {
		for range 2 {
			got, err := cache.FetchResult(t.Context(), at, "k", load, nil)
			if err != nil || !reflect.DeepEqual(got.Value, want) {
				t.Errorf("%s: %#v from %v, %v", name, got.Value, got.Source, err)
			}
		}
		many, err := cache.FetchMany(t.Context(), at, []string{"m"}, func(context.Context, []string) (map[string]any, error) {
			return map[string]any{"m": product{"mug"}}, nil
		}, nil)
		if err != nil || !reflect.DeepEqual(many["m"], any(want)) {
			t.Errorf("%s: FetchMany: %#v, %v", name, many, err)
		}
	}
}

// The error of a loader that Config.NotFound names is remembered, and is both.
func TestNotFoundOfLoader(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	loads := 0
	load := func(context.Context) (string, error) {
		loads++
		return "", fmt.Errorf("read product: %w", sql.ErrNoRows)
	}
	c := w.cache(cache.Config{NotFound: sql.ErrNoRows})
	_, err := cache.Fetch(t.Context(), c, "k", load, nil)
	wantError(t, "first", err, cache.ErrNotFound)
	wantError(t, "first", err, sql.ErrNoRows)
	_, err = cache.Fetch(t.Context(), c, "k", load, nil)
	wantError(t, "second", err, cache.ErrNotFound)
	warm := func(ctx context.Context, key string) (string, error) { return load(ctx) }
	for range 2 {
		got, err := cache.Warm(t.Context(), c, slices.Values([]string{"k", "warm"}), warm, nil, cache.WarmOptions{})
		wantWarmed(t, "Warm", got, cache.Warmed{Missing: 2})
		testenv.Must(t, err)
	}
	if n := c.Statistics().LoadErrors; loads != 2 || n != 0 {
		t.Errorf("%d loads, %d errors, wanted two and none", loads, n)
	}
	many := func(context.Context, []string) (map[string]string, error) {
		return nil, fmt.Errorf("read products: %w", sql.ErrNoRows)
	}
	_, err = cache.FetchMany(t.Context(), c, []string{"a", "b"}, many, nil)
	wantError(t, "FetchMany", err, cache.ErrNotFound)
	wantError(t, "FetchMany", err, sql.ErrNoRows)
	_, err = cache.Fetch(t.Context(), w.cache(cache.Config{}), "other", load, nil)
	if wantError(t, "without the option", err, sql.ErrNoRows); errors.Is(err, cache.ErrNotFound) {
		t.Errorf("without the option: %v", err)
	}
}

func TestClosed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.cache(cache.Config{})
	testenv.Must(t, c.Close())
	testenv.Must(t, c.Close())
	_, err := cache.Fetch(t.Context(), c, "k", w.db.read, nil)
	wantError(t, "Fetch", err, cache.ErrClosed)
	wantError(t, "Delete", c.Delete(t.Context(), "k"), cache.ErrClosed)
}

// Close ends loads that are under way.
func TestCloseEndsLoads(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.cache(cache.Config{})
	p := w.db.paused()
	answers := fetchBeside(t, c, "k", p.load, nil)
	<-p.read
	testenv.Must(t, c.Close())
	if got := <-answers; got.err == nil {
		t.Errorf("got %q", got.value)
	}
}
