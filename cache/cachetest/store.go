// Package cachetest provides a Cache for tests of an application: it needs no Redis, keeps its
// values in the test process, and has a clock that the test advances.
//
//	store := cachetest.NewStore(t)
//	products := store.Cache(cache.Config{Prefix: "shop:"})
//	...
//	store.Invalidate("shop:product:42") // what the worker does after the commit
//	store.Apply(m, row)                 // the same with a row and a map
//	store.Advance(time.Hour)
//
// The Cache is the real one: it uses the policies, leases, tag versions, negative results and
// shared loads of package cache, and one suite of tests runs over this store and over Redis. The
// network of Redis, its faults, and L1 are missing: Config.Memory and Config.Redis are ignored.
package cachetest

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/unstale/unstale/cache"
	"github.com/unstale/unstale/protocol"
)

// A Store replaces Redis. Caches of one store behave like those of several processes. Safe for
// concurrent use.
type Store struct {
	t      testing.TB
	client *redis.Client

	mu    sync.Mutex
	ahead time.Duration
	items map[string]item
	sets  map[string][]string // the members of index sets
}

// An item is a value with its end, the zero time for none.
type item struct {
	text string
	end  time.Time
}

// New returns a Cache with defaults on a new Store. It closes with the test.
func New(t testing.TB) *cache.Cache {
	t.Helper()
	return NewStore(t).Cache(cache.Config{})
}

// NewStore makes an empty Store, whose clock shows the present.
func NewStore(t testing.TB) *Store {
	t.Helper()
	s := &Store{t: t, items: map[string]item{}, sets: map[string][]string{}}
	s.client = redis.NewClient(&redis.Options{
		Addr: "cachetest", ContextTimeoutEnabled: true, MaxRetries: -1,
		// or it looks up the name
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		Dialer: func(context.Context, string, string) (net.Conn, error) {
			return nil, errors.New("cachetest: there is no server to connect to")
		},
	})
	s.client.AddHook(hook{s})
	t.Cleanup(func() { _ = s.client.Close() })
	return s
}

// Cache makes a Cache on the Store, which closes with the test. Config.Redis and Config.Memory are
// replaced. Without a Logger it logs nothing; without a Timeout it has 5 s, which a busy machine does
// not reach. A config that is refused fails the test.
//
// Each TTL varies by up to Config.Jitter, as always: a value is surely fresh for 0.8 of its
// policy's TTL, and surely gone after 1.2 of it and the policy's stale time.
func (s *Store) Cache(config cache.Config) *cache.Cache {
	s.t.Helper()
	config.Redis, config.Memory = client{s.client, s}, cache.Memory{}
	config.Timeout = cmp.Or(config.Timeout, 5*time.Second)
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	c, err := cache.New(config)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		if err := c.Close(); err != nil {
			s.t.Error(err)
		}
	})
	return c
}

// A client is the Redis client of a Cache. It provides the time: the Cache follows Advance
// immediately.
type client struct {
	*redis.Client
	store *Store
}

// Now returns the Store's time.
func (c client) Now() time.Time { return c.store.Now() }

// Now returns what the Store's clock shows: the present, and what Advance has added.
func (s *Store) Now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now()
}

func (s *Store) now() time.Time { return time.Now().Add(s.ahead) }

// Advance moves the clock forward: values and leases whose time is over are gone. It does not
// shorten waits of the Cache, such as Config.HardTimeout. It panics if d is negative.
func (s *Store) Advance(d time.Duration) {
	if d < 0 {
		panic("cachetest: time does not go back")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ahead += d
}

// Invalidate does what the worker does after a commit. It takes full key names, with the prefix.
// Each key is deleted with its lease, so a load that began earlier stores nothing.
func (s *Store) Invalidate(keys ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range keys {
		if lease, ok := protocol.LeaseKey(key); ok {
			delete(s.items, lease)
		}
		delete(s.items, key)
	}
}

// InvalidateTags does what the worker does with tags.
func (s *Store) InvalidateTags(tags ...string) {
	stamps := make([]string, len(tags))
	for i, tag := range tags {
		stamps[i] = protocol.StampKey(tag)
	}
	s.Invalidate(stamps...)
}

// InvalidatePattern does what the worker does with a pattern of the map, which matches full names.
// A pattern that is none fails the test.
func (s *Store) InvalidatePattern(pattern string) {
	s.t.Helper()
	glob, err := protocol.CompileGlob(pattern)
	if err != nil {
		s.t.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for name := range s.items {
		inner, lease := protocol.InnerKey(name)
		if glob.Match(name) && !strings.HasPrefix(name, protocol.HoldPrefix) || lease && glob.Match(inner) {
			delete(s.items, name)
		}
	}
}
