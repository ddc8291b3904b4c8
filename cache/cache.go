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
	memory  *memory   // nil without one
	reports *reporter // nil without one
	flights flights
	lost    lostLeases
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
	work   sync.WaitGroup // goroutines that load, or that talk to Redis for a Timeout at most, and callers that hold leases
	ears   sync.WaitGroup // those of the subscription
}

// New makes a Cache of config, to which defaults are applied. It sends nothing: a Redis that is away shows at the first
// call. The error names every field at fault. Close it.
func New(config Config) (*Cache, error) {
	config = config.WithDefaults()
	if err := config.Validate(); err != nil {
		return nil, fmt.Errorf("make cache: %w", err)
	}
	config.Hooks = config.Hooks.guarded(config.Logger)
	c := &Cache{config: config, slots: make(chan struct{}, config.Loads)}
	c.life, c.end = context.WithCancel(context.Background())
	c.redis = newBackend(config)
	c.redis.alive = c.newAliveCheck()
	if config.Memory.Size > 0 {
		c.memory = newMemory(config)
		if config.Memory.Report {
			c.reports = &reporter{process: config.Memory.Process, redis: c.redis, logger: config.Logger}
			c.launch(func() { c.reports.run(c.life) })
		}
		c.launchIn(&c.ears, func() { c.listen(c.life) })
	}
	return c, nil
}

// launch runs f in a goroutine that Close waits for. It reports false after Close.
func (c *Cache) launch(f func()) bool { return c.launchIn(&c.work, f) }

func (c *Cache) launchIn(group *sync.WaitGroup, f func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	group.Go(f)
	return true
}

// stay has Close wait for the caller's own goroutine until it calls leave. It reports false after Close.
func (c *Cache) stay() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.work.Add(1)
	}
	return !c.closed
}

func (c *Cache) leave() { c.work.Done() }

// ended is closed when all goroutines of a group have ended.
func ended(group *sync.WaitGroup) <-chan struct{} {
	done := make(chan struct{})
	go func() { group.Wait(); close(done) }()
	return done
}

// Close empties memory, ends the subscription and the contexts of loads, and waits until they have ended: for HardTimeout
// and three commands at most. For the subscription it waits no longer than Timeout: in the middle of a handshake with a Redis
// that says nothing only the client can end it, after its own ReadTimeout, and nothing is heard by it any more. Calls that
// come after it has begun return ErrClosed, also where it returns an error. What was heard before is reported, where
// Memory.Report asks for that. Closing again waits again. The Redis client stays open.
func (c *Cache) Close() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.memory.close() // while its invalidations are heard still
	c.end()
	patience, ear := time.NewTimer(c.config.HardTimeout+3*c.config.Timeout), time.NewTimer(c.config.Timeout)
	defer patience.Stop()
	defer ear.Stop()
	deaf := ended(&c.ears)
	select {
	case <-ended(&c.work):
	case <-patience.C:
		return errors.New("close cache: a loader does not end with its context")
	}
	select {
	case <-deaf:
	case <-ear.C:
	}
	return nil
}

// Clear forgets what this process keeps in memory, and keeps out of it what was asked for before. Redis stays as it is, and
// takes the values of loads that are under way.
func (c *Cache) Clear() { c.memory.clear() }

// Healthy returns nil if values are cached as configured, and otherwise why not: Redis is away, so that every call loads
// and nothing is kept; or Redis has refused the latest value, for lack of memory (ErrRedisOutOfMemory) or of a right; or
// Config.Lease is longer than the map's; or the workers write to another server or database; or nothing is given out from
// memory, since the worker cannot be heard; or invalidation is behind (ErrBehind); or nothing is
// kept there (ErrMemoryOverflow); or Close was called. It sends nothing.
func (c *Cache) Healthy() error {
	if c.life.Err() != nil {
		return ErrClosed
	}
	if err := c.redis.healthy(); err != nil {
		return err
	}
	if err := c.redis.writes.healthy(); err != nil {
		return err
	}
	if err := c.redis.alive.healthy(c.config.Lease); err != nil {
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
	p = p.on(c.config.Policy)
	if c.config.Plain && !p.plain {
		return nil, errors.New("the policy has tags, a stale time, sliding or negative results, which a plain cache has no room for")
	}
	return p, nil
}
