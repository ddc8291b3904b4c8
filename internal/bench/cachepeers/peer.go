package main

import (
	"context"
	"time"
)

// What every library is given: how long a value may be kept in Redis, and in the process where the library has a memory
// whose time can be set. The latter is the one of its manual's examples.
const (
	redisTTL  = time.Hour
	memoryTTL = time.Minute
)

// A loader reads a row.
type loader func(ctx context.Context) (string, error)

// A process is what one process of an application has of a library: a client of Redis and its memory, shared with nobody.
type process interface {
	// Get reads through the cache.
	Get(ctx context.Context, key string, load loader) (string, error)
	// Delete is how the library wants a key to be deleted after the commit.
	Delete(ctx context.Context, key string) error
	// Settle returns when all that was loaded has been sent to Redis: some libraries answer first.
	Settle()
	Close() error
}

// A tagger is a process whose values bear a tag.
type tagger interface {
	process
	DeleteTag(ctx context.Context, tag string) error
}

// A peer is a library, used as its documentation says.
type peer struct {
	Name    string
	Modules []string      // each with its version, as in go.mod; the first is the library
	Options string        // that it is given
	Memory  time.Duration // for which a value may stay in the process' memory; 0: it has none
	Refresh time.Duration // after which readers load again what Redis holds; 0: when its TTL is over
	Waits   string        // the function in which a caller waits for somebody else's load
	Tags    bool          // whether it knows tags
	Ours    bool          // invalidated by the worker alone
	open    func(ctx context.Context, s *site, redisAddr, tag string) (process, error)
}

// peers are all of them, ours at the end.
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
