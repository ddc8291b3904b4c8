package cache_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/unstale/unstale/cache"
	"github.com/unstale/unstale/cache/cachetest"
)

// quitter is a value that ends the goroutine which writes it.
type quitter struct{}

func (quitter) MarshalJSON() ([]byte, error) { runtime.Goexit(); return nil, nil }

// Any function of the application can end its goroutine, as t.Fatal does. All waiting callers learn
// of it immediately, and slot and lease are released: the next caller loads. In the bubble, a
// caller that waits forever is a deadlock.
func TestLoadEndsItsGoroutine(t *testing.T) {
	t.Parallel()
	quitOn := func(what string) func(context.Context, string) (context.Context, func(error)) {
		armed := true
		return func(ctx context.Context, at string) (context.Context, func(error)) {
			if at == what && armed {
				armed = false
				runtime.Goexit()
			}
			return ctx, nil
		}
	}
	load := func(context.Context) (any, error) { return "value", nil }
	for name, c := range map[string]struct {
		hooks cache.Hooks
		load  func(context.Context) (any, error)
	}{
		"loader":        {load: func(context.Context) (any, error) { runtime.Goexit(); return nil, nil }},
		"codec":         {load: func(context.Context) (any, error) { return quitter{}, nil }},
		"hook of load":  {cache.Hooks{Load: quitOn("k")}, load},
		"hook of lease": {cache.Hooks{Redis: quitOn("lease")}, load},
		"hook of fill":  {cache.Hooks{Redis: quitOn("fill")}, load},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := cachetest.NewStore(t)
				products := store.Cache(cache.Config{Loads: 1, Hooks: c.hooks})
				wantQuit := func(err error) {
					t.Helper()
					var panicked *cache.PanicError
					if !errors.As(err, &panicked) || !strings.Contains(err.Error(), "runtime.Goexit") || !strings.Contains(string(panicked.Stack), "goexit_test.go") {
						t.Errorf("got %v", err)
					}
				}
				_, err := cache.Fetch(t.Context(), products, "k", c.load, nil)
				wantQuit(err)
				synctest.Wait() // until the lease is given back
				got, err := cache.FetchResult(t.Context(), store.Cache(cache.Config{}), "k", load, nil)
				if err != nil || got.Value != "value" || got.Source != cache.FromLoader {
					t.Errorf("another process: %v, %v", got, err)
				}
				got, err = cache.FetchResult(t.Context(), products, "other", load, nil)
				if err != nil || got.Value != "value" {
					t.Errorf("then: %v, %v", got, err)
				}
			})
		})
	}
}

// FetchMany returns the error to its caller too.
func TestLoadOfManyEndsItsGoroutine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := cachetest.NewStore(t).Cache(cache.Config{Loads: 1})
		begun := time.Now()
		_, err := cache.FetchMany(t.Context(), c, []string{"k"}, func(context.Context, []string) (map[string]string, error) {
			runtime.Goexit()
			return nil, nil
		}, nil)
		var panicked *cache.PanicError
		if !errors.As(err, &panicked) || !strings.Contains(string(panicked.Stack), "goexit_test.go") {
			t.Errorf("got %v", err)
		}
		wantFetch(t, "then", c, "k", (&database{value: "v"}).read, nil, "v", cache.FromLoader)
		if waited := time.Since(begun); waited != 0 { // by the bubble's clock
			t.Errorf("they waited for %v", waited)
		}
	})
}

// A caller that waits for a slot until the hard timeout gets an error, even if loaders ignore their
// contexts.
func TestNoSlotInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := cachetest.NewStore(t).Cache(cache.Config{Loads: 1})
		running, release := make(chan struct{}), make(chan struct{})
		stuck := fetchBeside(t, c, "stuck", func(context.Context) (string, error) {
			close(running)
			<-release
			return "v", nil
		}, nil)
		<-running
		_, err := cache.Fetch(t.Context(), c, "k", func(context.Context) (string, error) { return "v", nil }, nil)
		wantError(t, "Fetch", err, cache.ErrLoadTimeout)
		_, err = cache.FetchMany(t.Context(), c, []string{"k"}, func(context.Context, []string) (map[string]string, error) { return nil, nil }, nil)
		wantError(t, "FetchMany", err, cache.ErrLoadTimeout)
		wantError(t, "the stuck one", (<-stuck).err, cache.ErrLoadTimeout)
		close(release)
	})
}
