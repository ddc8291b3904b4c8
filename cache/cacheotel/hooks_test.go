package cacheotel_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/unstale/unstale/cache"
	"github.com/unstale/unstale/cache/cacheotel"
	"github.com/unstale/unstale/cache/cachetest"
)

// A call has the spans that ended below the span of one call, by path.
type call map[string]tracetest.SpanStub

func (c call) attribute(path string, name attribute.Key) string {
	for _, a := range c[path].Attributes {
		if a.Key == name {
			return a.Value.AsString()
		}
	}
	return ""
}

// below runs a call below a separate span.
func below(t *testing.T, o cacheotel.Options, do func(ctx context.Context, store *cachetest.Store, c *cache.Cache)) (call, []string) {
	t.Helper()
	kept := tracetest.NewInMemoryExporter()
	provider := trace.NewTracerProvider(trace.WithSyncer(kept))
	defer provider.Shutdown(t.Context())
	tracer := provider.Tracer("test")
	store := cachetest.NewStore(t)
	c := store.Cache(cache.Config{Hooks: cacheotel.Hooks(tracer, o)})
	ctx, span := tracer.Start(t.Context(), "call")
	do(ctx, store, c)
	if err := c.Close(); err != nil { // which waits for background work of the call
		t.Error(err)
	}
	span.End()
	all := kept.GetSpans()
	var path func(s tracetest.SpanStub) string
	path = func(s tracetest.SpanStub) string {
		for _, parent := range all {
			if parent.SpanContext.SpanID() == s.Parent.SpanID() {
				return path(parent) + " > " + s.Name
			}
		}
		return s.Name
	}
	found, paths := call{}, []string{}
	for _, s := range all {
		found[path(s)] = s
		paths = append(paths, path(s))
	}
	return found, paths[:len(paths)-1]
}

const fetch = "call > cache fetch"

func load(context.Context) (string, error) { return "v", nil }

func TestSpans(t *testing.T) {
	t.Parallel()
	first := func(key string) string { return key[:1] + "..." }
	found, paths := below(t, cacheotel.Options{Key: first}, func(ctx context.Context, _ *cachetest.Store, c *cache.Cache) {
		if _, err := cache.Fetch(ctx, c, "key", load, nil); err != nil {
			t.Error(err)
		}
		if err := c.Delete(ctx, "key"); err != nil {
			t.Error(err)
		}
	})
	want := []string{fetch + " > cache read", fetch + " > cache lease", fetch + " > cache load", fetch + " > cache fill", fetch, "call > cache unlink"}
	if !slices.Equal(paths, want) {
		t.Errorf("got  %q\nwant %q", paths, want)
	}
	for _, path := range []string{fetch, fetch + " > cache load"} {
		if got := found.attribute(path, "cache.key"); got != "k..." {
			t.Errorf("%s shows the key as %q", path, got)
		}
	}
}

// Each result has its name; a loader that fails is an error, and what does not exist is none. No
// key shows by itself.
func TestResults(t *testing.T) {
	t.Parallel()
	policy := cache.MustPolicy(cache.Options{TTL: time.Hour, Stale: time.Hour})
	broken := errors.New("no database")
	for want, row := range map[string]struct {
		prepare func(ctx context.Context, store *cachetest.Store, c *cache.Cache)
		fails   error
		status  codes.Code
	}{
		"loader": {},
		"redis":  {prepare: func(ctx context.Context, _ *cachetest.Store, c *cache.Cache) { warm(ctx, t, c, policy) }},
		"stale": {prepare: func(ctx context.Context, store *cachetest.Store, c *cache.Cache) {
			warm(ctx, t, c, policy)
			store.Advance(80 * time.Minute)
		}},
		"none":  {fails: broken, status: codes.Error},
		"none ": {fails: cache.ErrNotFound},
	} {
		found, _ := below(t, cacheotel.Options{}, func(ctx context.Context, store *cachetest.Store, c *cache.Cache) {
			if row.prepare != nil {
				row.prepare(t.Context(), store, c)
			}
			_, err := cache.Fetch(ctx, c, "secret", func(context.Context) (string, error) { return "v", row.fails }, policy)
			if !errors.Is(err, row.fails) {
				t.Errorf("%s: %v", want, err)
			}
		})
		if got := found.attribute(fetch, "cache.result"); got != want && got+" " != want || found[fetch].Status.Code != row.status {
			t.Errorf("%s: got %q, %v", want, got, found[fetch].Status)
		}
		if key := found.attribute(fetch, "cache.key"); key != "" {
			t.Errorf("%s shows %q", want, key)
		}
	}
}

// warm stores a value outside of the call.
func warm(ctx context.Context, t *testing.T, c *cache.Cache, policy *cache.Policy) {
	t.Helper()
	if _, err := cache.Fetch(ctx, c, "secret", load, policy); err != nil {
		t.Fatal(err)
	}
}
