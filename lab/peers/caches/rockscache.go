package caches

import (
	"context"

	"github.com/dtm-labs/rockscache"
	"github.com/redis/go-redis/v9"
)

// rocksCache returns rockscache with its default options, or with its option StrongConsistency.
func rocksCache(strong bool) peer {
	p := peer{
		Name: "rockscache", Modules: []string{"github.com/dtm-labs/rockscache v0.1.1"}, Options: "NewDefaultOptions; Fetch2, TagAsDeleted2", Waits: waitGroup,
		open: func(_ context.Context, _ *site, redisAddr, _ string) (process, error) {
			client := redis.NewClient(&redis.Options{Addr: redisAddr})
			options := rockscache.NewDefaultOptions()
			options.StrongConsistency = strong
			return &rocksProcess{rockscache.NewClient(client, options), client}, nil
		},
	}
	if strong {
		p.Name, p.Options = "rockscache, strong", "StrongConsistency; Fetch2, TagAsDeleted2"
	}
	return p
}

type rocksProcess struct {
	cache  *rockscache.Client
	client *redis.Client
}

func (p *rocksProcess) Get(ctx context.Context, key string, load loader) (string, error) {
	return p.cache.Fetch2(ctx, key, redisTTL, func() (string, error) { return load(ctx) })
}

func (p *rocksProcess) Delete(ctx context.Context, key string) error {
	return p.cache.TagAsDeleted2(ctx, key)
}
func (p *rocksProcess) Settle()      {}
func (p *rocksProcess) Close() error { return p.client.Close() }
