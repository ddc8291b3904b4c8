package cache_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/unstale/unstale/cache"
	"github.com/unstale/unstale/cache/cachetest"
	"github.com/unstale/unstale/internal/testenv"
)

// While the database is away, the callers of an old value make few loads: one per LoadPause.
func TestFewLoadsInAnOutage(t *testing.T) {
	t.Parallel()
	broken := errors.New("the database is away")
	for name, test := range map[string]struct {
		config      cache.Config
		stale       time.Duration
		least, most int // loads of 20 calls
	}{
		"by default":     {cache.Config{}, -1, 1, 1},
		"revalidated":    {cache.Config{}, time.Hour, 1, 1},
		"without pause":  {cache.Config{LoadPause: -1}, -1, 20, 20},
		"a soft timeout": {cache.Config{SoftTimeout: 100 * time.Millisecond}, -1, 1, 1},
	} {
		for callName, call := range map[string]func(ctx context.Context, c *cache.Cache, load cache.Loader[string], p *cache.Policy) (string, error){
			"Fetch": func(ctx context.Context, c *cache.Cache, load cache.Loader[string], p *cache.Policy) (string, error) {
				return cache.Fetch(ctx, c, "k", load, p)
			},
			"FetchMany": func(ctx context.Context, c *cache.Cache, load cache.Loader[string], p *cache.Policy) (string, error) {
				got, err := cache.FetchMany(ctx, c, []string{"k"}, func(ctx context.Context, _ []string) (map[string]string, error) {
					value, err := load(ctx)
					return map[string]string{"k": value}, err
				}, p)
				return got["k"], err
			},
		} {
			if name == "a soft timeout" && callName == "FetchMany" {
				continue // has none
			}
			t.Run(name+", "+callName, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					store := cachetest.NewStore(t)
					c, loads := store.Cache(test.config), 0
					policy := cache.MustPolicy(cache.Options{TTL: time.Minute, Stale: test.stale, StaleOnError: time.Hour})
					_, err := call(t.Context(), c, (&database{value: "old"}).read, policy)
					testenv.Must(t, err)
					store.Advance(2 * time.Minute)
					fail := func(ctx context.Context) (string, error) {
						loads++
						if name == "a soft timeout" {
							<-ctx.Done()
						}
						return "", broken
					}
					began := time.Now()
					for range 20 {
						if got, err := call(t.Context(), c, fail, policy); err != nil || got != "old" {
							t.Errorf("%q, %v", got, err)
						}
						synctest.Wait()
					}
					if loads < test.least || loads > test.most {
						t.Errorf("%d loads of 20 calls, wanted %d to %d", loads, test.least, test.most)
					}
					if took := time.Since(began); took > 200*time.Millisecond {
						t.Errorf("20 calls took %v", took)
					}
					time.Sleep(20 * time.Second) // beyond HardTimeout and the pause
					loads = 0
					_, err = call(t.Context(), c, fail, policy)
					testenv.Must(t, err)
					synctest.Wait()
					if loads != 1 {
						t.Errorf("%d loads after the pause", loads)
					}
				})
			})
		}
	}
}

// FetchMany returns what it has with an error that names the rest.
func TestFetchManyReturnsWhatItHas(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.cache(cache.Config{})
	keys := keysOf(10)
	var asked [][]string
	want, err := cache.FetchMany(t.Context(), c, keys[:9], manyOf(&asked, "1"), nil)
	testenv.Must(t, err)
	broken := errors.New("the database is away")
	got, err := cache.FetchMany(t.Context(), c, keys, func(context.Context, []string) (map[string]string, error) { return nil, broken }, nil)
	wantError(t, "FetchMany", err, broken)
	var failed *cache.LoadError
	if !errors.As(err, &failed) || !slices.Equal(failed.Keys, keys[9:]) || !maps.Equal(got, want) {
		t.Errorf("%v, %v", got, err)
	}
}

// A value that another caller loads is returned, even if the load of the others has failed.
func TestFetchManyWaitsForOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := cachetest.NewStore(t).Cache(cache.Config{})
		release := make(chan struct{})
		type answer struct {
			got map[string]string
			err error
		}
		fetch := func(keys []string, load func(context.Context, []string) (map[string]string, error)) <-chan answer {
			answers := make(chan answer, 1)
			go func() {
				got, err := cache.FetchMany(t.Context(), c, keys, load, nil)
				answers <- answer{got, err}
			}()
			synctest.Wait()
			return answers
		}
		first := fetch([]string{"k0"}, func(context.Context, []string) (map[string]string, error) {
			<-release
			return map[string]string{"k0": "v"}, nil
		})
		broken := errors.New("the database is away")
		second := fetch(keysOf(2), func(context.Context, []string) (map[string]string, error) { return nil, broken })
		close(release)
		if a := <-first; a.err != nil || a.got["k0"] != "v" {
			t.Errorf("the first call: %+v", a)
		}
		a, failed := <-second, (*cache.LoadError)(nil)
		if !errors.As(a.err, &failed) || !slices.Equal(failed.Keys, []string{"k1"}) || a.got["k0"] != "v" {
			t.Errorf("the second call: %+v", a)
		}
	})
}
