package cache

import "context"

// Hooks are called as the Cache works, by the goroutine that does the work; they must not block. A nil one is left out.
// Spans of OpenTelemetry, for example, begin in one and end in the function that it returns.
type Hooks struct {
	// Fetch is called when Fetch has found nothing in this process' memory; FetchMany does not call it. The function that
	// it returns, if any, is called with where the value came from and whether it is stale, or with an error instead.
	Fetch func(ctx context.Context, key string) (context.Context, func(from Source, stale bool, err error))
	// Load is called before a loader runs. The loader gets the context that it returns. The function that it returns, if
	// any, is called with what came of it.
	Load func(ctx context.Context, key string) (context.Context, func(error))
	// Redis is called before a command or a pipeline is sent, with what it is for: read, lease, fill, release, stamps,
	// expire or unlink.
	Redis func(ctx context.Context, verb string) (context.Context, func(error))
	// Evict is called when keys and patterns were heard to be gone.
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
