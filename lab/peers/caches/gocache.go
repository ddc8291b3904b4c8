package caches

import (
	"context"
	"errors"

	gocache "github.com/eko/gocache/lib/v4/cache"
	"github.com/eko/gocache/lib/v4/store"
	redisstore "github.com/eko/gocache/store/redis/v4"
	"github.com/redis/go-redis/v9"
)

// goCache returns gocache with its loadable cache over its store for Redis. Its in-memory stores
// are separate modules and keep values until their TTL has passed, like go-redis/cache.
func goCache() peer {
	return peer{
		Name: "gocache", Modules: []string{"github.com/eko/gocache/lib/v4 v4.2.0", "github.com/eko/gocache/store/redis/v4 v4.2.2"}, Options: "NewLoadable, WithTags, Delete, Invalidate",
		Waits: waitGroup, Tags: true,
		open: func(_ context.Context, _ *site, redisAddr, tag string) (process, error) {
			p := &goCacheProcess{client: redis.NewClient(&redis.Options{Addr: redisAddr})}
			options := []store.Option{store.WithExpiration(redisTTL)}
			if tag != "" {
				options = append(options, store.WithTags([]string{tag}))
			}
			p.cache = gocache.New[string](redisstore.NewRedis(p.client, options...))
			p.Settle()
			return p, nil
		},
	}
}

type goCacheProcess struct {
	client   *redis.Client
	cache    *gocache.Cache[string]
	loadable *gocache.LoadableCache[string]
}

// loaderKey is the context key of the loader, since a loadable cache has one loader for all keys.
type loaderKey struct{}

func (p *goCacheProcess) Get(ctx context.Context, key string, load loader) (string, error) {
	return p.loadable.Get(context.WithValue(ctx, loaderKey{}, load), key)
}

func (p *goCacheProcess) Delete(ctx context.Context, key string) error {
	return p.loadable.Delete(ctx, key)
}

func (p *goCacheProcess) DeleteTag(ctx context.Context, tag string) error {
	return p.loadable.Invalidate(ctx, store.WithInvalidateTags([]string{tag}))
}

// Settle closes the loadable cache, which sends what it still has to store, and makes another one.
// It has no memory that would be lost.
func (p *goCacheProcess) Settle() {
	if p.loadable != nil {
		_ = p.loadable.Close()
	}
	p.loadable = gocache.NewLoadable(func(ctx context.Context, _ any) (string, []store.Option, error) {
		value, err := ctx.Value(loaderKey{}).(loader)(ctx)
		return value, nil, err
	}, p.cache)
}

func (p *goCacheProcess) Close() error { return errors.Join(p.loadable.Close(), p.client.Close()) }
