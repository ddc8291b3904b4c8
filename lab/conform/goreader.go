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
	prefix  string
	client  *redis.Client
	cache   *cache.Cache
	policy  *cache.Policy
	evicted atomic.Int64
}

func newGoReader(hello Line, memory bool) (reader, error) {
	ms := func(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
	options, err := redis.ParseURL(hello.Redis)
	if err != nil {
		return nil, err
	}
	redis.SetLogger(rig.Silence{})
	options.ContextTimeoutEnabled = true
	options.ReadTimeout, options.WriteTimeout = ms(hello.Timeout), ms(hello.Timeout)
	g := &goReader{prefix: hello.Prefix, client: redis.NewClient(options)}
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
	names := make([]string, len(keys))
	for i, key := range keys {
		names[i] = g.name(key)
	}
	loadNames := func(ctx context.Context, names []string) (map[string]string, error) {
		wanted := make([]string, len(names))
		for i, name := range names {
			wanted[i] = g.key(name)
		}
		values, err := load(ctx, wanted)
		return renamed(values, g.name), err
	}
	if len(keys) > 1 {
		values, err := cache.FetchMany(ctx, g.cache, names, loadNames, p)
		return renamed(values, g.key), err
	}
	value, err := cache.Fetch(ctx, g.cache, names[0], func(ctx context.Context) (string, error) {
		values, err := loadNames(ctx, names)
		value, ok := values[names[0]]
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

// name returns the name of a key for the cache, which adds the prefix itself.
func (g *goReader) name(key string) string { return key[len(g.prefix):] }

func (g *goReader) key(name string) string { return g.prefix + name }

func renamed(values map[string]string, name func(string) string) map[string]string {
	found := map[string]string{}
	for before, value := range values {
		found[name(before)] = value
	}
	return found
}
