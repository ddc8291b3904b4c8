package conform

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/cache"
	"github.com/unstale/unstale/lab/rig"
)

// A goReader is package cache, as an application uses it.
type goReader struct {
	prefix  int // its length
	client  *redis.Client
	cache   *cache.Cache
	policy  *cache.Policy
	evicted atomic.Int64
}

func newGoReader(_ context.Context, hello Line, memory bool) (reader, error) {
	ms := func(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
	options, err := redis.ParseURL(hello.Redis)
	if err != nil {
		return nil, err
	}
	redis.SetLogger(rig.Silence{})
	options.ContextTimeoutEnabled = true
	options.ReadTimeout, options.WriteTimeout = ms(hello.Timeout), ms(hello.Timeout)
	g := &goReader{prefix: len(hello.Prefix), client: redis.NewClient(options)}
	if g.policy, err = cache.NewPolicy(cache.Options{TTL: ms(hello.TTL), Stale: -1}); err != nil {
		return nil, err
	}
	config := cache.Config{
		Redis: g.client, Prefix: hello.Prefix, Lease: ms(hello.Lease), Timeout: ms(hello.Timeout), Logger: slog.New(slog.DiscardHandler), LoadPause: -1,
		Hooks: cache.Hooks{Evict: func(keys, patterns []string) { g.evicted.Add(int64(len(keys) + len(patterns))) }},
	}
	if memory {
		config.Memory = cache.Memory{Size: 100_000, Channel: hello.Channel, Sources: []string{hello.Source}, Period: ms(hello.Period)}
	}
	if g.cache, err = cache.New(config); err != nil {
		return nil, errors.Join(err, g.client.Close())
	}
	return g, nil
}

func (g *goReader) Close() error { return errors.Join(g.cache.Close(), g.client.Close()) }

func (g *goReader) applied() (int64, bool) { return g.evicted.Load(), g.cache.Healthy() == nil }

func (g *goReader) get(ctx context.Context, keys, tags []string, load loader) (map[string]string, error) {
	p := g.policy.Tagged(tags...)
	if len(keys) == 1 {
		value, err := cache.Fetch(ctx, g.cache, keys[0][g.prefix:], func(ctx context.Context) (string, error) {
			values, err := load(ctx, keys)
			value, ok := values[keys[0]]
			if err == nil && !ok {
				err = cache.ErrNotFound
			}
			return value, err
		}, p)
		if errors.Is(err, cache.ErrNotFound) {
			return nil, nil
		}
		return map[string]string{keys[0]: value}, err
	}
	names := make([]string, len(keys))
	for i, key := range keys {
		names[i] = key[g.prefix:]
	}
	found, err := cache.FetchMany(ctx, g.cache, names, func(ctx context.Context, names []string) (map[string]string, error) {
		wanted := make([]string, len(names))
		for i, name := range names {
			wanted[i] = keys[0][:g.prefix] + name
		}
		values, err := load(ctx, wanted)
		loaded := map[string]string{}
		for key, value := range values {
			loaded[key[g.prefix:]] = value
		}
		return loaded, err
	}, p)
	values := map[string]string{}
	for name, value := range found {
		values[keys[0][:g.prefix]+name] = value
	}
	return values, err
}
