package lock

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/redisclient"
)

// Redis is the Backend of one Redis, 6.0 or later: a server, Sentinel or Cluster. Let it be one that evicts nothing and keeps an AOF, not
// that of the cache. A failover or a restart may lose locks, which Guard makes harmless.
type Redis struct {
	// Client is used at masters, and not closed. It needs ContextTimeoutEnabled, and should have eight connections or
	// more: a quarter of them may wait for locks. With DialerRetries of 1 errors tell why a connection fails; by default
	// go-redis dials for longer than Timeout, and errors tell of its end. A Ring is refused, since it gives a name to another server when one is away.
	Client redis.UniversalClient

	// Prefix is put before every key: the lock "a" is PREFIX{a}, and PREFIX{a}:wake what its waiters listen to. It has no
	// braces. Zero: "lock:".
	Prefix string
}

func (r Redis) open(config Config, launch func(func()) bool) (service, error) {
	if err := checkPrefix("Redis", r.Prefix); err != nil {
		return nil, err
	}
	pool, err := checkClient("Redis.Client", r.Client)
	if err != nil {
		return nil, err
	}
	return &redisService{newInstance(r.Client, r.Prefix, "", pool, config, launch)}, nil
}

// timeout is for one request, which takes a fraction of it.
func (r Redis) timeout(ttl time.Duration) time.Duration { return redisTimeout(ttl) }

func redisTimeout(ttl time.Duration) time.Duration { return min(200*time.Millisecond, ttl/3) }

// checkPrefix refuses braces, by which Redis Cluster tells the slot.
func checkPrefix(backend, prefix string) error {
	if strings.ContainsAny(prefix, "{}") {
		return fmt.Errorf("%s.Prefix is %q: it must not have braces", backend, prefix)
	}
	return nil
}

// checkClient refuses clients that cannot keep locks, and returns how many connections one opens to a server.
func checkClient(field string, c redis.UniversalClient) (pool int, err error) {
	if v := reflect.ValueOf(c); c == nil || v.Kind() == reflect.Pointer && v.IsNil() {
		return 0, errors.New(field + " is nil: give a client of go-redis")
	}
	switch client := c.(type) {
	case interface{ Options() *redis.RingOptions }:
		return 0, errors.New(field + " is a Ring, which gives a name to another server when one is away: use a single server, Sentinel or Cluster")
	case interface{ Options() *redis.ClusterOptions }:
		pool = client.Options().PoolSize
	case interface{ Options() *redis.Options }:
		pool = client.Options().PoolSize
	}
	if ends, _ := redisclient.EndsCalls(c); !ends {
		return 0, errors.New(field + " ignores the deadlines of contexts: set ContextTimeoutEnabled in its options, and no timeout below 0")
	}
	return pool, nil
}

// redisService is a Redis at work.
type redisService struct{ *instance }

func (s *redisService) acquire(ctx context.Context, c claim, wait bool) (answer, error) {
	told, err := s.instance.acquire(ctx, c, wait)
	told.lost = err != nil && !errors.As(err, new(redis.Error)) && !errors.Is(err, errClock)
	return told, err
}

func (s *redisService) release(ctx context.Context, c claim) (bool, error) {
	return s.instance.release(ctx, c, true)
}

// lapsed implements service: the lease has ended by itself.
func (s *redisService) lapsed(claim) {}

func (s *redisService) released(c claim) (<-chan struct{}, func() bool) {
	return s.wakes.listen(c.name)
}

func (s *redisService) passOn(c claim) { s.instance.passOn(c.name) }

// close implements service: the client is the caller's.
func (s *redisService) close() {}
