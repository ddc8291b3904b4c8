package caches

import (
	"context"
	"errors"

	rediscache "github.com/go-redis/cache/v9"
	"github.com/redis/go-redis/v9"
)

// goRedisCache returns go-redis/cache with its Once, which loads a missing key once per process.
// Its second level is the one of its README.
func goRedisCache(memory bool) peer {
	p := peer{
		Name: "go-redis/cache", Modules: []string{"github.com/go-redis/cache/v9 v9.0.0"}, Options: "Once, Delete", Waits: waitGroup,
		open: func(_ context.Context, _ *site, redisAddr, _ string) (process, error) {
			client := redis.NewClient(&redis.Options{Addr: redisAddr})
			o := &rediscache.Options{Redis: client}
			if memory {
				o.LocalCache = rediscache.NewTinyLFU(10_000, memoryTTL)
			}
			return &goRedisProcess{rediscache.New(o), client}, nil
		},
	}
	if memory {
		p.Name, p.Options, p.Memory = "go-redis/cache, TinyLFU", "Once, Delete, NewTinyLFU(1m)", memoryTTL
	}
	return p
}

type goRedisProcess struct {
	cache  *rediscache.Cache
	client *redis.Client
}

func (p *goRedisProcess) Get(ctx context.Context, key string, load loader) (value string, err error) {
	err = p.cache.Once(&rediscache.Item{
		Ctx: ctx, Key: key, Value: &value, TTL: redisTTL,
		Do: func(*rediscache.Item) (any, error) { return load(ctx) },
	})
	return value, err
}

func (p *goRedisProcess) Delete(ctx context.Context, key string) error {
	return p.cache.Delete(ctx, key)
}
func (p *goRedisProcess) Settle()      {}
func (p *goRedisProcess) Close() error { return p.client.Close() }

// goRedisTracking returns the client-side cache of go-redis itself (since 9.22, experimental). It
// has no loader and does not keep loaded values in memory, so the application does GET, the load
// and SET.
func goRedisTracking() peer {
	return peer{
		Name: "go-redis, client-side cache", Modules: []string{"github.com/redis/go-redis/v9 v9.23.0"}, Options: "ClientSideCacheConfig; GET, load, SET; DEL",
		Memory: redisTTL,
		open: func(_ context.Context, _ *site, redisAddr, _ string) (process, error) {
			return &trackingProcess{redis.NewClient(&redis.Options{
				Addr: redisAddr, Protocol: 3, ClientSideCacheConfig: &redis.ClientSideCacheConfig{MaxEntries: 10_000},
			})}, nil
		},
	}
}

type trackingProcess struct{ client *redis.Client }

func (p *trackingProcess) Get(ctx context.Context, key string, load loader) (string, error) {
	value, err := p.client.Get(ctx, key).Result()
	if !errors.Is(err, redis.Nil) {
		return value, err
	}
	if value, err = load(ctx); err != nil {
		return "", err
	}
	return value, p.client.Set(ctx, key, value, redisTTL).Err()
}

func (p *trackingProcess) Delete(ctx context.Context, key string) error {
	return p.client.Del(ctx, key).Err()
}
func (p *trackingProcess) Settle()      {}
func (p *trackingProcess) Close() error { return p.client.Close() }
