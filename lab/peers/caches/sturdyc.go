package caches

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/viccon/sturdyc"
)

// sturdy returns sturdyc over Redis as its distributed storage, with both kinds of early refreshes.
// These bound the age of a value that is read continuously. The durations are from its README.
func sturdy() peer {
	return peer{
		Name: "sturdyc", Modules: []string{"github.com/viccon/sturdyc v1.1.5"}, Waits: waitGroup, Memory: memoryTTL, Refresh: time.Minute,
		Options: "WithDistributedStorageEarlyRefreshes(1m), WithEarlyRefreshes(10ms, 30ms), TTL 1m; Delete",
		open: func(_ context.Context, _ *site, redisAddr, _ string) (process, error) {
			storage := &sturdyStorage{client: redis.NewClient(&redis.Options{Addr: redisAddr})}
			storage.stored.L = &storage.mu
			return &sturdyProcess{storage: storage, cache: sturdyc.New[string](10_000, 10, memoryTTL, 10,
				sturdyc.WithDistributedStorageEarlyRefreshes(storage, time.Minute),
				sturdyc.WithEarlyRefreshes(10*time.Millisecond, 30*time.Millisecond, 30*time.Second, 10*time.Millisecond),
				// a goroutine that never ends; the TTL is heeded without it
				sturdyc.WithNoContinuousEvictions(),
			)}, nil
		},
	}
}

type sturdyProcess struct {
	cache   *sturdyc.Client[string]
	storage *sturdyStorage
}

func (p *sturdyProcess) Get(ctx context.Context, key string, load loader) (string, error) {
	return p.cache.GetOrFetch(ctx, key, func(ctx context.Context) (string, error) {
		value, err := load(ctx)
		if err == nil {
			p.storage.add(1)
		}
		return value, err
	})
}

// Delete removes a key from Redis, which the library leaves to the application, and from this
// process.
func (p *sturdyProcess) Delete(ctx context.Context, key string) error {
	err := p.storage.client.Del(ctx, key).Err()
	p.cache.Delete(key)
	return err
}

func (p *sturdyProcess) Settle() {
	p.storage.mu.Lock()
	defer p.storage.mu.Unlock()
	for p.storage.pending > 0 {
		p.storage.stored.Wait()
	}
}

func (p *sturdyProcess) Close() error { p.Settle(); return p.storage.client.Close() }

// A sturdyStorage is Redis as the library sees it. It stores each loaded value once, after it has
// answered.
type sturdyStorage struct {
	client *redis.Client

	mu      sync.Mutex
	stored  sync.Cond // on mu
	pending int       // values that were loaded and are not stored yet
}

func (s *sturdyStorage) add(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pending += n
	s.stored.Broadcast()
}

func (s *sturdyStorage) Get(ctx context.Context, key string) ([]byte, bool) {
	value, err := s.client.Get(ctx, key).Bytes()
	return value, err == nil
}

func (s *sturdyStorage) Set(ctx context.Context, key string, value []byte) {
	defer s.add(-1)
	_ = s.client.Set(ctx, key, value, redisTTL).Err()
}

func (s *sturdyStorage) Delete(ctx context.Context, key string) { _ = s.client.Del(ctx, key).Err() }

// The library requires these methods. Nothing here reads or writes many keys in one call.
func (s *sturdyStorage) GetBatch(context.Context, []string) map[string][]byte { return nil }
func (s *sturdyStorage) SetBatch(context.Context, map[string][]byte)          {}
func (s *sturdyStorage) DeleteBatch(context.Context, []string)                {}
