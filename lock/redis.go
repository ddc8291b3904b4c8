package lock

import (
	"context"
	_ "embed" // for the scripts
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/redisclient"
)

// Redis is the Backend of one Redis: a server, Sentinel or Cluster. Let it be one that evicts nothing and keeps an AOF, not
// that of the cache. A failover or a restart may lose locks, which Guard makes harmless.
type Redis struct {
	// Client is used at masters, and not closed. It needs ContextTimeoutEnabled, and should have eight connections or
	// more: a quarter of them may wait for locks. A Ring is refused, since it gives a name to another server when one is away.
	Client redis.UniversalClient

	// Prefix is put before every key: the lock "a" is PREFIX{a}, and PREFIX{a}:wake what its waiters listen to. It has no
	// braces. Zero: "lock:".
	Prefix string
}

var (
	//go:embed acquire.lua
	acquireLua string
	//go:embed extend.lua
	extendLua string
	//go:embed release.lua
	releaseLua string

	acquireScript = redis.NewScript(acquireLua)
	extendScript  = redis.NewScript(extendLua)
	releaseScript = redis.NewScript(releaseLua)
)

// redisService is a Redis at work.
type redisService struct {
	client redis.UniversalClient
	prefix string
	config Config
	clocks clocks
	wakes  wakes
}

func (r Redis) open(config Config, launch func(func()) bool) (service, error) {
	pool, err := r.check()
	if err != nil {
		return nil, err
	}
	s := &redisService{client: r.Client, prefix: r.Prefix, config: config}
	if s.prefix == "" {
		s.prefix = "lock:"
	}
	s.wakes = wakes{service: s, most: pool / 4, launch: launch, pops: map[string]*pop{}}
	return s, nil
}

// timeout is for one request, which takes a fraction of it.
func (r Redis) timeout(ttl time.Duration) time.Duration { return min(200*time.Millisecond, ttl/3) }

// check refuses clients that cannot keep locks, and returns how many connections one opens to a server.
func (r Redis) check() (pool int, err error) {
	if strings.ContainsAny(r.Prefix, "{}") {
		return 0, fmt.Errorf("Redis.Prefix is %q: it must not have braces", r.Prefix)
	}
	if v := reflect.ValueOf(r.Client); r.Client == nil || v.Kind() == reflect.Pointer && v.IsNil() {
		return 0, errors.New("Redis.Client is nil: give a client of go-redis")
	}
	switch client := r.Client.(type) {
	case interface{ Options() *redis.RingOptions }:
		return 0, errors.New("Redis.Client is a Ring, which gives a name to another server when one is away: use a single server, Sentinel or Cluster")
	case interface{ Options() *redis.ClusterOptions }:
		pool = client.Options().PoolSize
	case interface{ Options() *redis.Options }:
		pool = client.Options().PoolSize
	}
	if ends, _ := redisclient.EndsCalls(r.Client); !ends {
		return 0, errors.New("Redis.Client ignores the deadlines of contexts: set ContextTimeoutEnabled in its options, and no timeout below 0")
	}
	return pool, nil
}

func (s *redisService) key(name string) string     { return s.prefix + "{" + name + "}" }
func (s *redisService) wakeKey(name string) string { return s.key(name) + ":wake" }

// acquire implements service. It asks at most three times: a server whose clock is not known, or has been set, tells it.
func (s *redisService) acquire(ctx context.Context, c claim, _ bool) (answer, error) {
	node := s.node(ctx, c.name)
	for range 3 {
		notBefore, notAfter := s.clocks.window(node, s.config.Timeout)
		sent := now()
		parts, err := acquireScript.Run(ctx, s.client, []string{s.key(c.name), s.wakeKey(c.name)},
			c.token.String(), s.config.TTL.Milliseconds(), notBefore, notAfter, s.config.Holder).Slice()
		if err != nil {
			return answer{}, fmt.Errorf("ask Redis: %w", err)
		}
		if len(parts) < 2 {
			return answer{}, fmt.Errorf("ask Redis: it answers %v", parts)
		}
		server, _ := parts[1].(int64)
		s.clocks.learn(node, server, sent, now())
		switch {
		case parts[0] == "acquired":
			return answer{acquired: true}, nil
		case parts[0] == "taken" && len(parts) == 4:
			value, _ := parts[2].(string)
			left, _ := parts[3].(int64)
			return taken(value, server, left), nil
		}
	}
	return answer{}, errors.New("ask Redis: its clock was set, again and again, or its answers take longer than Timeout")
}

// node names the server that has a name, since each has its own clock.
func (s *redisService) node(ctx context.Context, name string) string {
	cluster, ok := s.client.(*redis.ClusterClient)
	if !ok {
		return ""
	}
	master, err := cluster.MasterForKey(ctx, s.key(name))
	if err != nil {
		return "" // the script will say why
	}
	return master.Options().Addr
}

// taken reads the value of somebody else: token, since when in ms, holder.
func taken(value string, server, left int64) answer {
	a := answer{left: time.Duration(left) * time.Millisecond}
	parts := strings.SplitN(value, " ", 3)
	if len(parts) != 3 {
		return a
	}
	since, err := strconv.ParseInt(parts[1], 10, 64)
	if err != nil {
		return a
	}
	a.holder, a.since, a.held = parts[2], time.UnixMilli(since), time.Duration(server-since)*time.Millisecond
	return a
}

func (s *redisService) extend(ctx context.Context, c claim) (bool, error) {
	return extendScript.Run(ctx, s.client, []string{s.key(c.name)}, c.token.String(), s.config.TTL.Milliseconds()).Bool()
}

func (s *redisService) release(ctx context.Context, c claim) (bool, error) {
	return releaseScript.Run(ctx, s.client, []string{s.key(c.name), s.wakeKey(c.name)}, c.token.String(), s.config.TTL.Milliseconds()).Bool()
}

// lapsed implements service: the lease has ended by itself.
func (s *redisService) lapsed(claim) {}

func (s *redisService) released(c claim) (<-chan struct{}, func()) { return s.wakes.listen(c.name) }

// close implements service: the client is the caller's.
func (s *redisService) close() {}
