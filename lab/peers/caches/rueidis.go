package caches

import (
	"context"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidisaside"
)

// rueidisAside returns rueidisaside. Its in-process cache is Redis client-side caching and cannot
// be turned off.
func rueidisAside() peer {
	return peer{
		Name: "rueidisaside", Modules: []string{"github.com/redis/rueidis/rueidisaside v1.0.78", "github.com/redis/rueidis v1.0.79"}, Options: "Get, Del", Memory: redisTTL,
		Waits: "rueidisaside.(*Client).Get",
		open: func(_ context.Context, _ *site, redisAddr, _ string) (process, error) {
			client, err := rueidisaside.NewClient(rueidisaside.ClientOption{
				ClientOption: rueidis.ClientOption{InitAddress: []string{redisAddr}},
			})
			return asideProcess{client}, err
		},
	}
}

type asideProcess struct{ client rueidisaside.CacheAsideClient }

func (p asideProcess) Get(ctx context.Context, key string, load loader) (string, error) {
	return p.client.Get(ctx, redisTTL, key, func(ctx context.Context, _ string) (string, error) { return load(ctx) })
}

func (p asideProcess) Delete(ctx context.Context, key string) error { return p.client.Del(ctx, key) }
func (p asideProcess) Settle()                                      {}
func (p asideProcess) Close() error                                 { p.client.Close(); return nil }
