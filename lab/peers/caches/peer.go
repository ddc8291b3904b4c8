package caches

import (
	"context"
	"time"
)

// The settings of every library: how long a value may stay in Redis, and in the process, if the
// library has an in-process cache with a configurable TTL. The latter is that of its manual's
// examples.
const (
	redisTTL  = time.Hour
	memoryTTL = time.Minute
)

// A loader reads a row.
type loader func(ctx context.Context) (string, error)

// A process is the state that one process of an application has: a client of Redis and its own
// in-process cache.
type process interface {
	// Get reads through the cache.
	Get(ctx context.Context, key string, load loader) (string, error)
	// Delete deletes a key after the commit in the way that the library documents.
	Delete(ctx context.Context, key string) error
	// Settle returns when all that was loaded has been sent to Redis: some libraries answer first.
	Settle()
	Close() error
}

// A tagger is a process whose values have a tag.
type tagger interface {
	process
	DeleteTag(ctx context.Context, tag string) error
}

// A peer is a library, used as its documentation says.
type peer struct {
	Name    string
	Modules []string      // each with its version, as in go.mod; the first is the library
	Options string        // that it is given
	Memory  time.Duration // how long a value may stay in process memory; 0: it has none
	// time after which readers reload a value from Redis; 0: when its TTL has passed
	Refresh time.Duration
	Waits   string // the function in which a caller waits for the load of another caller
	Tags    bool   // whether it knows tags
	Ours    bool   // invalidated by the worker alone
	open    func(ctx context.Context, s *site, redisAddr, tag string) (process, error)
}

// peers returns all libraries. Package cache is the last one.
func peers() []peer {
	return []peer{
		goRedisCache(false), goRedisCache(true),
		goCache(),
		sturdy(),
		goRedisTracking(),
		rueidisAside(),
		rocksCache(false), rocksCache(true),
		ours(false), ours(true),
	}
}

// waitGroup is how singleflight, and what is made like it, waits.
const waitGroup = "sync.(*WaitGroup).Wait"
