package cache

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// A Cache is one process' way to cached values. Make one per process and Redis; it is safe for concurrent use.
type Cache struct {
	config  Config
	redis   *backend
	memory  *memory // nil without one
	flights flights
	slots   chan struct{} // one for each loader that runs
	seen    seenStamps
	touched touches
	counts  counts
	misses  expectation

	complaints complaints

	// events orders loads and callers: each load takes the next number, and a caller remembers the latest at its arrival.
	events atomic.Uint64

	life   context.Context // ends with Close
	end    context.CancelFunc
	mu     sync.Mutex // guards closed against work
	closed bool
	work   sync.WaitGroup // goroutines
}

// New makes a Cache of config, to which defaults are applied. It sends nothing: a Redis that is away shows at the first
// call. The error names every field at fault. Close it.
func New(config Config) (*Cache, error) {
	config = config.WithDefaults()
	if err := config.Validate(); err != nil {
		return nil, fmt.Errorf("make cache: %w", err)
	}
	c := &Cache{config: config, slots: make(chan struct{}, config.Loads)}
	c.life, c.end = context.WithCancel(context.Background())
	c.redis = newBackend(config)
	if config.Memory.Size > 0 {
		c.memory = newMemory(config)
		c.launch(func() { c.listen(c.life) })
	}
	return c, nil
}

// launch runs f in a goroutine that Close waits for. It reports false after Close.
func (c *Cache) launch(f func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.work.Go(f)
	return true
}

// Close ends the subscription and the contexts of loads, and waits until they have ended: for HardTimeout and three
// commands at most. Later calls return ErrClosed. Closing again waits again. The Redis client stays open.
func (c *Cache) Close() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.end()
	done := make(chan struct{})
	go func() { c.work.Wait(); close(done) }()
	patience := time.NewTimer(c.config.HardTimeout + 3*c.config.Timeout)
	defer patience.Stop()
	select {
	case <-done:
	case <-patience.C:
		return errors.New("close cache: a loader does not end with its context")
	}
	c.memory.close()
	return nil
}

// Clear forgets what this process keeps in memory. Redis stays as it is.
func (c *Cache) Clear() { c.memory.clear() }

// Healthy returns nil if values are cached as configured, and otherwise why not: Redis is away, so that every call loads
// and callers of one process share loads whatever was invalidated; or nothing is given out from memory, since the worker
// cannot be heard; or nothing is kept there (ErrMemoryOverflow). It sends nothing.
func (c *Cache) Healthy() error {
	if err := c.redis.healthy(); err != nil {
		return err
	}
	return c.memory.healthy()
}

// name is the key in Redis.
func (c *Cache) name(key string) string {
	if c.config.Prefix == "" {
		return key
	}
	return c.config.Prefix + key
}

// policy is the one to use, checked against the Cache.
func (c *Cache) policy(p *Policy) (*Policy, error) {
	switch {
	case p == nil:
		return c.config.Policy, nil
	case p.o.TTL == 0: // that of After on none
		return c.config.Policy.After(p.after), nil
	}
	if c.config.Plain && !p.plain {
		return nil, errors.New("the policy has tags, a stale time, sliding or negative results, which a plain cache has no room for")
	}
	return p, nil
}
