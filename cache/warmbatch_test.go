package cache_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/unstale/unstale/cache"
	"github.com/unstale/unstale/cache/cachetest"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/protocol"
)

// A warmer counts the round trips of a Cache, in a bubble.
type warmer struct {
	*testing.T
	*cache.Cache
	store   *cachetest.Store
	latency time.Duration // of a round trip
	mu      sync.Mutex
	trips   map[string]int
}

func newWarmer(t *testing.T, config cache.Config) *warmer {
	w := &warmer{T: t, store: cachetest.NewStore(t), trips: map[string]int{}}
	config.Hooks.Redis = func(ctx context.Context, verb string) (context.Context, func(error)) {
		time.Sleep(w.latency)
		w.mu.Lock()
		defer w.mu.Unlock()
		w.trips[verb]++
		return ctx, nil
	}
	w.Cache = w.store.Cache(config)
	return w
}

func (w *warmer) warm(keys iter.Seq[string], load func(context.Context, string) (string, error), parallel int, want cache.Warmed) error {
	w.Helper()
	got, err := cache.Warm(w.Context(), w.Cache, keys, load, nil, cache.WarmOptions{Parallel: parallel})
	wantWarmed(w.T, "Warm", got, want)
	return err
}

func itself(_ context.Context, key string) (string, error) { return key, nil }

// Keys are looked up and stored many at a time, even if few loads run at a time.
func TestWarmMakesFewRoundTrips(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWarmer(t, cache.Config{})
		w.latency = time.Millisecond
		const keys = 1000
		testenv.Must(t, w.warm(slices.Values(keysOf(keys)), itself, 4, cache.Warmed{Loaded: keys}))
		// 4, 8, 16 ... 256 and 500 keys
		if n := w.trips; n["read"] != 8 || n["lease"] != 8 || n["fill"] > 20 {
			t.Errorf("%v", n)
		}
		clear(w.trips)
		testenv.Must(t, w.warm(slices.Values(keysOf(keys)), itself, 4, cache.Warmed{Already: keys}))
		if n := w.trips; n["read"] != 8 || len(n) != 1 {
			t.Errorf("cached keys: %v", n)
		}
	})
}

// A pipeline of the client that panics fails its own keys, and leaves no leases.
func TestWarmClientPanics(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	client := testenv.Client(t, w.url)
	client.AddHook(panicking{script: redis.NewScript(protocol.FillScript).Hash(), times: new(atomic.Int32)})
	got, err := cache.Warm(t.Context(), w.cache(cache.Config{Redis: client, Timeout: 5 * time.Second}), slices.Values(keysOf(1000)), itself, nil, cache.WarmOptions{Parallel: 2})
	var panicked *cache.PanicError
	if got.Failed == 0 || got.Loaded == 0 || got.Failed+got.Loaded != 1000 || !errors.As(err, &panicked) || panicked.Value != "the client's hook" {
		t.Errorf("got %+v, %v", got, err)
	}
	if leases := must1(t, w.client.Keys(t.Context(), "lock:fill:*").Result); len(leases) > 0 {
		t.Errorf("left %v", leases)
	}
}

// Keys whose loads cannot begin yet keep no other caller waiting for long, even after fast loads.
func TestWarmHoldsLeasesBriefly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWarmer(t, cache.Config{})
		done := make(chan error, 1)
		go func() {
			done <- w.warm(slices.Values(keysOf(50)), func(ctx context.Context, key string) (string, error) {
				if len(key) == 3 { // from k10 on
					time.Sleep(time.Second)
				}
				return key, nil
			}, 1, cache.Warmed{Loaded: 48, Already: 2})
		}()
		time.Sleep(1500 * time.Millisecond) // k11 is being loaded
		for i, c := range []*cache.Cache{w.Cache, w.store.Cache(cache.Config{})} {
			key, begun := fmt.Sprint("k", 30+i), time.Now()
			wantFetch(t, key, c, key, (&database{value: "v"}).read, nil, "v", cache.FromLoader)
			if took := time.Since(begun); took > 300*time.Millisecond {
				t.Errorf("%s came after %v", key, took)
			}
		}
		testenv.Must(t, <-done)
	})
}

// A loader may fetch keys of the same Warm. It waits for none that waits for its turn.
func TestWarmLoadsFetchEachOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWarmer(t, cache.Config{Loads: 1})
		keys := keysOf(60)
		begun := time.Now()
		err := w.warm(slices.Values(keys), func(ctx context.Context, key string) (string, error) {
			next := (slices.Index(keys, key) + 7) / 10 * 10 % 60 // k0, k10 ... are wanted by others
			if i := slices.Index(keys, key); i%10 == 0 {
				return key, nil
			}
			return cache.Fetch(ctx, w.Cache, keys[next], func(context.Context) (string, error) { return keys[next], nil }, nil)
		}, 1, cache.Warmed{Loaded: 55, Already: 5})
		testenv.Must(t, err)
		if took := time.Since(begun); took > 50*time.Millisecond { // by the bubble's clock: some wait for a store
			t.Errorf("it took %v", took)
		}
	})
}

// A loader decides for its own key how it is stored, or that it fails.
func TestWarmKeysAreApart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWarmer(t, cache.Config{})
		other := w.store.Cache(cache.Config{})
		load := func(ctx context.Context, key string) (string, error) {
			switch key {
			case "k1":
				cache.FillFrom(ctx).Skip()
			case "k2":
				cache.FillFrom(ctx).TTL(time.Second)
			case "k3":
				runtime.Goexit()
			case "k4":
				<-ctx.Done() // for too long
				time.Sleep(time.Minute)
			case "k5": // Redis then refuses the value, in a pipeline with others
				testenv.Must(t, other.Delete(ctx, key))
			}
			return key, nil
		}
		err := w.warm(slices.Values(keysOf(10)), load, 8, cache.Warmed{Loaded: 6, Unstored: 2, Failed: 2})
		var quit *cache.PanicError
		if wantError(t, "k4", err, cache.ErrLoadTimeout); !errors.As(err, &quit) || !strings.Contains(string(quit.Stack), "warmbatch_test.go") {
			t.Errorf("got %v", err)
		}
		time.Sleep(2 * time.Second)
		for key, from := range map[string]cache.Source{"k0": cache.FromRedis, "k1": cache.FromLoader, "k2": cache.FromLoader, "k3": cache.FromLoader, "k5": cache.FromLoader, "k9": cache.FromRedis} {
			wantFetch(t, key, w.Cache, key, func(context.Context) (string, error) { return key, nil }, nil, key, from)
		}
		time.Sleep(time.Minute)
	})
}

// A load of another caller that it waits for is not its own.
func TestWarmJoinsALoad(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWarmer(t, cache.Config{})
		release := make(chan struct{})
		loaded := fetchBeside(t, w.Cache, "k0", func(context.Context) (string, error) { <-release; return "v", nil }, nil)
		synctest.Wait()
		done := make(chan error, 1)
		go func() { done <- w.warm(slices.Values(keysOf(3)), itself, 8, cache.Warmed{Loaded: 2, Already: 1}) }()
		synctest.Wait()
		close(release)
		wantAnswer(t, "k0", loaded, "v")
		testenv.Must(t, <-done)
	})
}

// A warm-up that is stopped leaves no leases, and the loads that began are counted or ended.
func TestWarmLeavesNoLeases(t *testing.T) {
	t.Parallel()
	for name, stop := range map[string]func(*cache.Cache, context.CancelFunc) error{
		"context": func(_ *cache.Cache, cancel context.CancelFunc) error { cancel(); return nil },
		"Close":   func(c *cache.Cache, _ context.CancelFunc) error { return c.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWarmer(t, cache.Config{})
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				done := make(chan cache.Warmed, 1)
				go func() {
					got, err := cache.Warm(ctx, w.Cache, slices.Values(keysOf(40)), func(ctx context.Context, key string) (string, error) {
						if key == "k20" {
							<-ctx.Done()
						}
						return key, nil
					}, nil, cache.WarmOptions{Parallel: 1})
					if err == nil {
						t.Error("it was not stopped")
					}
					done <- got
				}()
				synctest.Wait() // k20 loads, and others wait for the turn
				testenv.Must(t, stop(w.Cache, cancel))
				wantWarmed(t, name, <-done, cache.Warmed{Loaded: 20})
				testenv.Must(t, w.Cache.Close()) // which ends k20
				begun, other := time.Now(), w.store.Cache(cache.Config{})
				for _, key := range keysOf(40) {
					wantFetched(t, key, other, key, func(context.Context) (string, error) { return key, nil }, key)
				}
				if took := time.Since(begun); took > 0 {
					t.Errorf("others wait for %v", took)
				}
			})
		})
	}
}

// BenchmarkWarm compares Warm of 5,000 keys that are not cached with 5,000 calls of Fetch, eight at a
// time, and with one FetchMany. Each round runs all three. It reports medians, without and with a
// network.
func BenchmarkWarm(b *testing.B) {
	for _, latency := range []time.Duration{0, 500 * time.Microsecond} {
		b.Run(fmt.Sprint("round trip of ", latency, " more"), func(b *testing.B) {
			c := newWorld(b).cache(cache.Config{Prefix: "shop:", Hooks: cache.Hooks{Redis: func(ctx context.Context, _ string) (context.Context, func(error)) {
				if latency > 0 {
					time.Sleep(latency)
				}
				return ctx, nil
			}}})
			benchmarkWarm(b, c)
		})
	}
}

func benchmarkWarm(b *testing.B, c *cache.Cache) {
	const keys = 5000
	kinds := []struct {
		name string
		run  func(names []string) error
	}{
		{"warm", func(names []string) error {
			_, err := cache.Warm(b.Context(), c, slices.Values(names), itself, nil, cache.WarmOptions{})
			return err
		}},
		{"fetch", func(names []string) error {
			turns, all := make(chan struct{}, 8), sync.WaitGroup{}
			for _, name := range names {
				turns <- struct{}{}
				all.Go(func() {
					defer func() { <-turns }()
					_, _ = cache.Fetch(b.Context(), c, name, func(context.Context) (string, error) { return name, nil }, nil)
				})
			}
			all.Wait()
			return nil
		}},
		{"fetch-many", func(names []string) error {
			_, err := cache.FetchMany(b.Context(), c, names, func(_ context.Context, names []string) (map[string]string, error) { return allOf(names), nil }, nil)
			return err
		}},
	}
	took := make([][]float64, len(kinds))
	var ratios []float64
	for round := 0; b.Loop(); round++ {
		var now [3]float64
		for turn := range kinds {
			kind := (turn + round) % len(kinds)
			names := make([]string, keys)
			for i := range names {
				names[i] = fmt.Sprint(round, ":", kind, ":", i)
			}
			begun := time.Now()
			if err := kinds[kind].run(names); err != nil {
				b.Fatal(err)
			}
			now[kind] = float64(time.Since(begun).Milliseconds())
			took[kind] = append(took[kind], now[kind])
		}
		ratios = append(ratios, now[1]/max(now[0], 1))
	}
	median := func(all []float64) float64 { slices.Sort(all); return all[len(all)/2] }
	for kind, all := range took {
		b.ReportMetric(median(all), kinds[kind].name+"-ms")
	}
	b.ReportMetric(median(ratios), "fetch/warm")
}
