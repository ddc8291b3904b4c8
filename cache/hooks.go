package cache

import (
	"context"
	"log/slog"
	"runtime/debug"
)

// Hooks are called by the goroutine that does the work; they must not block. A nil hook is not
// called. A panic of a hook is logged, at most once per minute, and the work continues without the
// hook. If a hook returns no context, the given one is used. For example, a span of OpenTelemetry
// begins in a hook and ends in the function that it returns.
type Hooks struct {
	// Fetch is called when Fetch finds no value in L1; FetchMany and Warm do not call it. The
	// function that it returns, if any, is called with the source of the value and whether it is
	// stale, or with an error.
	Fetch func(ctx context.Context, key string) (context.Context, func(from Source, stale bool, err error))
	// Load is called before a loader runs. The loader gets the context that it returns. The
	// function that it returns, if any, is called with the error of the load.
	Load func(ctx context.Context, key string) (context.Context, func(error))
	// Redis is called before a command or a pipeline is sent, with its purpose: read, slide, lease,
	// fill, release, stamps, expire, unlink, report or popular.
	Redis func(ctx context.Context, verb string) (context.Context, func(error))
	// Evict is called with the keys and patterns of a message.
	Evict func(keys, patterns []string)
}

func begin(ctx context.Context, hook func(context.Context, string) (context.Context, func(error)), what string) (context.Context, func(error)) {
	if hook == nil {
		return ctx, nil
	}
	return hook(ctx, what)
}

func end(hook func(error), err error) {
	if hook != nil {
		hook(err)
	}
}

// guarded returns the hooks, none of which can panic.
func (h Hooks) guarded(logger *slog.Logger) Hooks {
	g := &hookGuard{logger: logger}
	if fetch := h.Fetch; fetch != nil {
		h.Fetch = func(ctx context.Context, key string) (inner context.Context, ended func(Source, bool, error)) {
			inner = ctx
			defer g.caught("Fetch")
			if inner, ended = fetch(ctx, key); inner == nil {
				inner = ctx
			}
			if hook := ended; hook != nil {
				ended = func(from Source, stale bool, err error) {
					defer g.caught("Fetch")
					hook(from, stale, err)
				}
			}
			return inner, ended
		}
	}
	if evict := h.Evict; evict != nil {
		h.Evict = func(keys, patterns []string) {
			defer g.caught("Evict")
			evict(keys, patterns)
		}
	}
	h.Load, h.Redis = g.around("Load", h.Load), g.around("Redis", h.Redis)
	return h
}

// A hookGuard keeps panics of hooks from their callers.
type hookGuard struct {
	logger     *slog.Logger
	complaints complaints
}

// around guards a hook that has begin's form.
func (g *hookGuard) around(name string, hook func(context.Context, string) (context.Context, func(error))) func(context.Context, string) (context.Context, func(error)) {
	if hook == nil {
		return nil
	}
	return func(ctx context.Context, what string) (inner context.Context, ended func(error)) {
		inner = ctx
		defer g.caught(name)
		if inner, ended = hook(ctx, what); inner == nil {
			inner = ctx
		}
		if after := ended; after != nil {
			ended = func(err error) {
				defer g.caught(name)
				after(err)
			}
		}
		return inner, ended
	}
}

// caught must be deferred around the call of a hook. It logs a panic.
func (g *hookGuard) caught(name string) {
	if p := recover(); p != nil && g.complaints.due() {
		g.logger.Error("a hook panicked; it changes nothing else", "hook", name, "panic", p, "stack", string(debug.Stack()))
	}
}
