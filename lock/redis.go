package lock

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/redisclient"
	"github.com/unstale/unstale/lock/internal/locking"
)

// Redis is the Backend of one Redis, 6.0 or later: a server, Sentinel or Cluster. Use a Redis that
// evicts nothing and keeps an AOF, not the Redis of the cache. A failover or a restart may lose
// locks. Guard makes that harmless.
type Redis struct {
	// Client is used at masters, and not closed. It needs ContextTimeoutEnabled, and should have at
	// least eight connections: a quarter of them may wait for locks. Set DialerRetries to 1 to see
	// why a connection fails: by default go-redis dials for longer than Timeout, and errors show
	// only the timeout. A Ring is refused, since it maps a name to another server when one is
	// unavailable.
	Client redis.UniversalClient

	// Prefix is put before every key: the lock "a" is PREFIX{a}, and its waiters listen to
	// PREFIX{a}:wake. It must not have braces. Names in MySQL do not include it: Lockers of one
	// database need different names. Zero: "lock:".
	Prefix string
}

// Opener implements Backend.
func (r Redis) Opener() Opener { return locking.NewOpener(r.open, nil) }

func (r Redis) open(o locking.Opening) (locking.Service, error) {
	if err := checkPrefix("Redis", r.Prefix); err != nil {
		return nil, err
	}
	pool, err := checkClient("Redis.Client", r.Client)
	if err != nil {
		return nil, err
	}
	return &redisService{newInstance(r.Client, r.Prefix, "", pool, o)}, nil
}

// checkPrefix refuses braces, since Redis Cluster derives the slot from them.
func checkPrefix(backend, prefix string) error {
	if strings.ContainsAny(prefix, "{}") {
		return fmt.Errorf("%s.Prefix is %q: it must not have braces", backend, prefix)
	}
	return nil
}

// checkClient refuses clients that cannot keep locks, and returns how many connections one opens to
// a server.
func checkClient(field string, c redis.UniversalClient) (pool int, err error) {
	if v := reflect.ValueOf(c); c == nil || v.Kind() == reflect.Pointer && v.IsNil() {
		return 0, errors.New(field + " is nil: give a client of go-redis")
	}
	switch client := c.(type) {
	case interface{ Options() *redis.RingOptions }:
		return 0, errors.New(field + " is a Ring, which maps a name to another server when one is unavailable: use a single server, Sentinel or Cluster")
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

// Acquire implements locking.Service.
func (s *redisService) Acquire(ctx context.Context, c locking.Claim, wait bool) (locking.Answer, error) {
	told, err := s.instance.acquire(ctx, c, wait)
	told.Lost = unanswered(err)
	return told, err
}

// unanswered reports whether a request has got no reply and may still arrive.
func unanswered(err error) bool {
	return err != nil && !errors.As(err, new(redis.Error)) && !errors.Is(err, errClock) && !errors.Is(err, errShort) && !errors.Is(err, errTwin)
}

// Extend implements locking.Service.
func (s *redisService) Extend(ctx context.Context, c locking.Claim) (bool, error) {
	return s.extend(ctx, c)
}

// Release implements locking.Service.
func (s *redisService) Release(ctx context.Context, c locking.Claim) (bool, error) {
	was, _, err := s.instance.release(ctx, c, true)
	return was, err
}

// Lapsed implements locking.Service: the lease has ended by itself.
func (s *redisService) Lapsed(locking.Claim) {}

// Yields implements locking.Service: those who are woken ask as early as whoever has released.
func (s *redisService) Yields(locking.Claim) bool { return false }

// Released implements locking.Service.
func (s *redisService) Released(c locking.Claim) (<-chan struct{}, func() bool) {
	return s.wakes.listen(c.Name)
}

// PassOn implements locking.Service.
func (s *redisService) PassOn(c locking.Claim) { s.instance.passOn(c.Name) }

// Close implements locking.Service: the client is the caller's.
func (s *redisService) Close() {}
