// Package cacheotel creates OpenTelemetry spans for the calls of a Cache. It is a separate package
// because applications without OpenTelemetry should not link it.
//
//	cache.New(cache.Config{Redis: client, Hooks: cacheotel.Hooks(otel.Tracer("shop"), cacheotel.Options{})})
//
// "cache fetch" is a call of Fetch, with cache.result: redis, stale, loader (even if the call
// joined the load of another call) or none. Its children are "cache load" around its loader, with
// the spans of the loader as children, and "cache read", "cache lease", "cache fill", "cache
// stamps" and "cache release" around commands to Redis. Other calls, for example FetchMany and
// Delete ("cache unlink"), create these as children of the caller's span. A hit in L1 creates no
// span. If a background load follows a stale value, its spans end after the span of the call.
package cacheotel

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/unstale/unstale/cache"
)

// Options configure spans.
type Options struct {
	// Key returns the value of the attribute cache.key for a key, for example a part of it or a
	// hash: keys may contain personal data. If several keys are loaded together, the value is their
	// number, for example "3 keys". Nil: the attribute is absent.
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
				endSpan(span, err)
			}
		},
		Load: func(ctx context.Context, key string) (context.Context, func(error)) {
			ctx, span := start(ctx, "cache load", key)
			return ctx, func(err error) { endSpan(span, err) }
		},
		Redis: func(ctx context.Context, verb string) (context.Context, func(error)) {
			ctx, span := tracer.Start(ctx, "cache "+verb, trace.WithSpanKind(trace.SpanKindClient),
				trace.WithAttributes(attribute.String("db.system.name", "redis"), attribute.String("cache.verb", verb)))
			return ctx, func(err error) { endSpan(span, err) }
		},
	}
}

// result returns the value of cache.result.
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

// endSpan ends a span, as failed if there is an error. That something does not exist is none.
func endSpan(span trace.Span, err error) {
	if err != nil && !errors.Is(err, cache.ErrNotFound) {
		span.RecordError(err)
		span.SetStatus(codes.Error, err.Error())
	}
	span.End()
}
