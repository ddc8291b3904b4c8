package conform

import (
	"cmp"
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
	client  redis.UniversalClient
	cache   *cache.Cache
	ttl     time.Duration
	evicted atomic.Int64
}

func ms(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

func newGoReader(hello Line, memory bool) (reader, error) {
	options, err := redis.ParseURL(hello.Redis)
	if err != nil {
		return nil, err
	}
	redis.SetLogger(rig.Silence{})
	options.ContextTimeoutEnabled = true
	options.ReadTimeout, options.WriteTimeout = ms(hello.Timeout), ms(hello.Timeout)
	g := &goReader{prefix: hello.Prefix, client: hello.connect(options), ttl: ms(hello.TTL)}
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

func (g *goReader) refused() uint64 { return g.cache.Statistics().Refused }

// sources are the names of sources in lines.
var sources = map[cache.Source]string{cache.FromMemory: "memory", cache.FromRedis: "redis", cache.FromLoader: "load"}

func (g *goReader) get(ctx context.Context, l Line, load loader) (values map[string]string, from string, err error) {
	p, err := cache.NewPolicy(cache.Options{TTL: cmp.Or(ms(l.TTL), g.ttl), Stale: cmp.Or(ms(l.Stale), -1), Tags: l.Tags})
	if err != nil {
		return nil, "", err
	}
	names := make([]string, len(l.Keys))
	for i, key := range l.Keys {
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
	if len(names) > 1 {
		values, err = cache.FetchMany(ctx, g.cache, names, loadNames, p)
		return renamed(values, g.key), "", err
	}
	got, err := cache.FetchResult(ctx, g.cache, names[0], func(ctx context.Context) (string, error) {
		values, err := loadNames(ctx, names)
		value, ok := values[names[0]]
		if err == nil && !ok {
			err = cache.ErrNotFound
		}
		return value, err
	}, p)
	if from = sources[got.Source]; got.Stale {
		from = "stale"
	}
	if errors.Is(err, cache.ErrNotFound) {
		return nil, from, nil
	}
	return map[string]string{l.Keys[0]: got.Value}, from, err
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
