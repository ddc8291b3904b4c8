package cache_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/unstale/unstale/cache"
	"github.com/unstale/unstale/cache/cachetest"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/protocol"
)

// unwritable is a value whose own method panics when it is written.
type unwritable struct{ Name string }

func (unwritable) MarshalJSON() ([]byte, error) { panic("a field is nil") }

// A value that panics when it is written is one that the codec cannot write: it is given out and
// not stored.
func TestWritingPanics(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.cache(cache.Config{Lease: time.Hour})
	tea := unwritable{"tea"}
	got, err := cache.Fetch(t.Context(), c, "k", func(context.Context) (unwritable, error) { return tea, nil }, nil)
	if err != nil || got != tea {
		t.Errorf("Fetch: %v, %v", got, err)
	}
	w.noLease("k")
	many, err := cache.FetchMany(t.Context(), c, []string{"k", "l"}, func(context.Context, []string) (map[string]unwritable, error) {
		return map[string]unwritable{"k": tea, "l": tea}, nil
	}, nil)
	if err != nil || many["k"] != tea || many["l"] != tea {
		t.Errorf("FetchMany: %v, %v", many, err)
	}
	if n := c.Statistics().Errors; n != 3 || w.stored("k") != "" {
		t.Errorf("%d errors, Redis holds %q", n, w.stored("k"))
	}
	lease, err := c.Lease(t.Context(), "k", nil)
	testenv.Must(t, err)
	err = cache.Set(t.Context(), lease, tea)
	wantError(t, "Set", err, cache.ErrSerialization)
	if err == nil || !strings.Contains(err.Error(), "a field is nil") || !strings.Contains(err.Error(), "panic_test.go") {
		t.Errorf("Set says %v", err)
	}
	if n := c.Statistics().Errors; n != 4 {
		t.Errorf("%d errors after Set", n)
	}
	wantFetch(t, "then", c, "k", w.db.read, nil, "old", cache.FromLoader)
}

// fragile is a value that reads only what its present version writes.
type fragile struct{ parts []string }

func (f *fragile) UnmarshalText(text []byte) error {
	f.parts = strings.Split(string(text), "/")
	_ = f.parts[1]
	return nil
}

func (f fragile) MarshalText() ([]byte, error) { return []byte(strings.Join(f.parts, "/")), nil }

// An entry that panics when it is read is corrupt: it is loaded again, and replaced.
func TestReadingPanics(t *testing.T) {
	t.Parallel()
	plain := cache.MustPolicy(cache.Options{TTL: time.Hour, Stale: -1, NegativeTTL: -1})
	for name, config := range map[string]cache.Config{"entry": {}, "plain": {Plain: true, Policy: plain}} {
		w := newWorld(t)
		c := w.cache(config)
		text := `{"e":99999999999999,"v":"of an older version"}`
		if config.Plain {
			text = `"of an older version"`
		}
		testenv.Must(t, w.client.Set(t.Context(), "k", text, time.Hour).Err())
		_, err := cache.Get[fragile](t.Context(), c, "k")
		wantError(t, name+": Get", err, cache.ErrMiss)
		for _, from := range []cache.Source{cache.FromLoader, cache.FromRedis} {
			got, err := cache.FetchResult(t.Context(), c, "k", func(context.Context) (fragile, error) { return fragile{[]string{"a", "b"}}, nil }, nil)
			if err != nil || len(got.Value.parts) != 2 || got.Source != from {
				t.Errorf("%s: %+v, %v, wanted it from %v", name, got, err, from)
			}
		}
	}
}

// If a hook returns no context, the given one is used.
func TestHooksWithoutContext(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	none := func(context.Context, string) (context.Context, func(error)) { return nil, nil }
	c := w.cache(cache.Config{Hooks: cache.Hooks{Load: none, Redis: none, Fetch: func(context.Context, string) (context.Context, func(cache.Source, bool, error)) { return nil, nil }}})
	load := func(ctx context.Context) (string, error) {
		cache.FillFrom(ctx).TTL(time.Hour)
		return w.db.read(ctx)
	}
	wantFetch(t, "first", c, "k", load, nil, "old", cache.FromLoader)
	wantFetch(t, "then", c, "k", load, nil, "old", cache.FromRedis)
	_, err := cache.FetchMany(t.Context(), c, []string{"l"}, func(context.Context, []string) (map[string]string, error) { return nil, nil }, nil)
	testenv.Must(t, err)
	testenv.Must(t, c.Delete(t.Context(), "k"))
}

// Hooks that panic, at their start or at their end, affect only the log: values are stored, Redis
// does not count as unavailable, and invalidated keys are gone.
func TestHooksPanic(t *testing.T) {
	t.Parallel()
	at := func(context.Context, string) (context.Context, func(error)) { panic("no tracer") }
	after := func(ctx context.Context, _ string) (context.Context, func(error)) {
		return ctx, func(error) { panic("no tracer") }
	}
	evict := func([]string, []string) { panic("no tracer") }
	for name, hooks := range map[string]cache.Hooks{
		"begin": {Load: at, Redis: at, Evict: evict, Fetch: func(context.Context, string) (context.Context, func(cache.Source, bool, error)) { panic("no tracer") }},
		"end": {Load: after, Redis: after, Evict: evict, Fetch: func(ctx context.Context, _ string) (context.Context, func(cache.Source, bool, error)) {
			return ctx, func(cache.Source, bool, error) { panic("no tracer") }
		}},
	} {
		w, log, channel := newWorld(t), &logbook{}, "c:"+t.Name()+name
		c := w.cache(cache.Config{Hooks: hooks, Memory: deafMemory(channel), Logger: slog.New(slog.NewTextHandler(log, nil))})
		w.opened(c, channel)
		wantFetch(t, name, c, "k", w.db.read, nil, "old", cache.FromLoader)
		wantFetch(t, name, c, "k", w.db.read, nil, "old", cache.FromMemory)
		w.commit("new", "k")
		w.publish(channel, protocol.Message{Keys: []string{"k"}})
		testenv.Eventually(t, "the message", func() bool { return c.Statistics().Invalidations > 0 })
		testenv.Eventually(t, "the new value", func() bool {
			got, err := cache.Fetch(t.Context(), c, "k", w.db.read, nil)
			return err == nil && got == "new"
		})
		_, err := cache.FetchMany(t.Context(), c, []string{"l"}, func(context.Context, []string) (map[string]string, error) { return nil, nil }, nil)
		testenv.Must(t, err)
		missing(t, c)
		wantFetch(t, name, c, "m", w.db.read, nil, "new", cache.FromLoader)
		testenv.Must(t, c.Delete(t.Context(), "k", "m"))
		testenv.Must(t, c.Healthy())
		if !log.has("no tracer") || !log.has("panic_test.go") {
			t.Errorf("%s: nothing is logged", name)
		}
	}
}

// A panic of a loader is in the log, even if no caller gets it: in a refresh in the background, or
// if an old value replaces the failed load.
func TestPanicWithoutCallerIsLogged(t *testing.T) {
	t.Parallel()
	stale, onError := cache.Options{TTL: time.Hour, Stale: time.Hour}, cache.Options{TTL: time.Hour, Stale: -1, StaleOnError: time.Hour}
	for name, options := range map[string]cache.Options{"stale": stale, "many stale": stale, "on error": onError, "many on error": onError} {
		store, log, policy := cachetest.NewStore(t), &logbook{}, cache.MustPolicy(options)
		c := store.Cache(cache.Config{Logger: slog.New(slog.NewTextHandler(log, nil))})
		fetch := func(value func() string) {
			t.Helper()
			if !strings.HasPrefix(name, "many") {
				got, err := cache.Fetch(t.Context(), c, "k", func(context.Context) (string, error) { return value(), nil }, policy)
				if err != nil || got != "old" {
					t.Errorf("%s: got %q, %v", name, got, err)
				}
				return
			}
			got, err := cache.FetchMany(t.Context(), c, []string{"k"}, func(context.Context, []string) (map[string]string, error) {
				return map[string]string{"k": value()}, nil
			}, policy)
			if err != nil || got["k"] != "old" {
				t.Errorf("%s: got %v, %v", name, got, err)
			}
		}
		fetch(func() string { return "old" })
		store.Advance(90 * time.Minute)
		fetch(func() string { panic("no such row") })
		testenv.Eventually(t, name+": the log", func() bool {
			return log.has("a loader panicked") && log.has("no such row") && log.has("panic_test.go")
		})
	}
}
