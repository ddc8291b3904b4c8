package caches

import (
	"context"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/cache"
)

// ours returns package cache. The application deletes nothing after a commit: the transaction
// inserts a row, and the worker deletes.
func ours(memory bool) peer {
	p := peer{
		Name: "unstale", Options: "Fetch; outbox and worker", Tags: true, Ours: true,
		Waits: "cache.(*request).wait",
		open: func(ctx context.Context, s *site, redisAddr, tag string) (process, error) {
			client := redis.NewClient(&redis.Options{Addr: redisAddr, ContextTimeoutEnabled: true})
			config := cache.Config{Redis: client, Timeout: 5 * time.Second, Logger: slog.New(slog.DiscardHandler)}
			if memory {
				config.Memory = cache.Memory{Size: 10_000, Channel: s.channel, TTL: memoryTTL, MaxStaleness: memoryTTL}
			}
			c, err := cache.New(config)
			if err != nil {
				return nil, err
			}
			p := &ourProcess{c, client, cache.For(redisTTL)}
			if tag != "" {
				p.policy = p.policy.Tagged(tag)
			}
			if memory {
				err = until(ctx, func() (bool, error) { return c.Healthy() == nil, nil })
			}
			return p, err
		},
	}
	if memory {
		p.Name, p.Options, p.Memory = "unstale, Memory", "Fetch, Memory; outbox and worker", memoryTTL
	}
	return p
}

type ourProcess struct {
	cache  *cache.Cache
	client *redis.Client
	policy *cache.Policy
}

func (p *ourProcess) Get(ctx context.Context, key string, load loader) (string, error) {
	return cache.Fetch(ctx, p.cache, key, load, p.policy)
}

func (p *ourProcess) Delete(ctx context.Context, key string) error { return p.cache.Delete(ctx, key) }
func (p *ourProcess) DeleteTag(ctx context.Context, tag string) error {
	return p.cache.DeleteTag(ctx, tag)
}
func (p *ourProcess) Settle()      {}
func (p *ourProcess) Close() error { _ = p.cache.Close(); return p.client.Close() }
