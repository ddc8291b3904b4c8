// Package cacheotel makes spans of OpenTelemetry from what a Cache does. It is a module of its own, so that nobody who imports
// unstale gets OpenTelemetry with it.
//
//	cache.New(cache.Config{Redis: client, Hooks: cacheotel.Hooks(otel.Tracer("shop"), cacheotel.Options{})})
//
// "cache fetch" is a call of Fetch, with cache.result: redis, stale, loader (also where the call joined a load that another
// one had begun) or none. Below it are "cache load" around its loader, whose own spans lie below that, and "cache read",
// "cache lease", "cache fill", "cache stamps" and "cache release" around what is sent to Redis. Other calls, such as FetchMany
// and Delete ("cache unlink"), have those below the caller's span. A hit in this process' memory makes no span. Where a
// background load follows a stale value, its spans end after that of the call.
package cacheotel

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/unstale/unstale/cache"
)

// Options say what spans show.
type Options struct {
	// Key is what the attribute cache.key shows of a key, such as a part of it or a hash: keys may hold personal data. Of
	// several keys that are loaded together it gets their number, as "3 keys". Nil: there is no such attribute.
	Key func(key string) string
}

// Hooks makes the hooks for cache.Config. Evict has none.
func Hooks(tracer trace.Tracer, o Options) cache.Hooks {
	start := func(ctx context.Context, name, key string) (context.Context, trace.Span) {
		ctx, span := tracer.Start(ctx, name)
		if o.Key != nil && span.IsRecording() {
			span.SetAttributes(attribute.String("cache.key", o.Key(key)))
		}
		return ctx, span
	}
	return cache.Hooks{
		Fetch: func(ctx context.Context, key string) (context.Context, func(cache.Source, bool, error)) {
			ctx, span := start(ctx, "cache fetch", key)
			return ctx, func(from cache.Source, stale bool, err error) {
				span.SetAttributes(attribute.String("cache.result", result(from, stale, err)))
				end(span, err)
			}
		},
		Load: func(ctx context.Context, key string) (context.Context, func(error)) {
			ctx, span := start(ctx, "cache load", key)
			return ctx, func(err error) { end(span, err) }
		},
		Redis: func(ctx context.Context, verb string) (context.Context, func(error)) {
			ctx, span := tracer.Start(ctx, "cache "+verb, trace.WithSpanKind(trace.SpanKindClient),
				trace.WithAttributes(attribute.String("db.system.name", "redis"), attribute.String("cache.verb", verb)))
			return ctx, func(err error) { end(span, err) }
		},
	}
}

// result is the value of cache.result.
func result(from cache.Source, stale bool, err error) string {
	switch {
	case err != nil:
		return "none"
	case stale:
		return "stale"
	case from == cache.FromLoader:
		return "loader"
	}
	return "redis"
}

// end ends a span, as failed if there is an error. That something does not exist is none.
func end(span trace.Span, err error) {
	if err != nil && !errors.Is(err, cache.ErrNotFound) {
		span.RecordError(err)
		span.SetStatus(codes.Error, err.Error())
	}
	span.End()
}
