package cache

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// A Cache reads and stores cached values. Make one per process and Redis. It is safe for concurrent
// use.
type Cache struct {
	config     Config
	redis      *backend
	memory     *memory     // nil without one
	reports    *reporter   // nil without one
	popularity *popularity // nil without one
	shadows    *shadows    // nil without any
	flights    flights
	leases     *leaser
	stamps     stampStore
	loaders    loaders
	seen       seenStamps
	touched    touches
	counts     counts
	reads      readCounts
	misses     expectation

	complaints complaints
	luck       func() float64 // exponentially distributed: see eagerness

	run      running
	listener *listener
}

// New returns a Cache with defaults applied to config. It sends nothing: an unavailable Redis shows
// at the first call. The error names every invalid field. Call Close when done.
func New(config Config) (*Cache, error) {
	config = config.WithDefaults()
	if err := config.Validate(); err != nil {
		return nil, fmt.Errorf("make cache: %w", err)
	}
	config.Hooks = config.Hooks.guarded(config.Logger)
	c := &Cache{config: config, luck: rand.ExpFloat64}
	c.loaders.slots, c.loaders.counts, c.loaders.hook, c.loaders.logger = make(chan struct{}, config.Loads), &c.counts, config.Hooks.Load, config.Logger
	c.flights.pauses.length = config.LoadPause
	c.run.begin()
	c.redis = newBackend(config)
	c.redis.alive = newAliveCheck(config, &c.redis.clock, &c.run, &c.counts)
	c.redis.stalled = &c.counts.stalled
	if c.redis.clock.keeper == nil { // not in an application's test
		c.redis.stalls.launch, c.redis.stalls.life, c.redis.stalls.keep = c.run.launch, c.run.life, config.Timeout
	}
	c.leases = &leaser{redis: c.redis, counts: &c.counts, lost: lostLeases{redis: c.redis, run: &c.run}}
	c.stamps = stampStore{c.redis}
	if config.Memory.Size > 0 {
		c.memory = newMemory(config)
	}
	if c.memory != nil && config.Memory.Report {
		c.reports = newReporter(config, c.redis, &c.reads)
	}
	if config.Popularity && c.redis.clock.keeper == nil {
		c.popularity = newPopularity(config, c.redis)
		c.run.every(popularInterval, c.popularity.report)
	}
	if config.Shadow.Fraction > 0 && c.redis.clock.keeper == nil {
		c.shadows = newShadows(c)
	}
	c.listener = newListener(config, c.redis, c.memory, c.reports, &c.run, &c.counts)
	if c.memory == nil {
		c.redis.alive.misled.listen = c.listener.listenBriefly
	} else {
		c.run.launchEar(func() { c.listener.listen(c.run.life) })
	}
	if c.reports != nil {
		c.run.every(reportInterval, c.report)
	}
	return c, nil
}

// Close empties L1, ends the subscription and the contexts of loads, and waits until they have
// ended: at most HardTimeout plus three commands. It waits at most Timeout for the subscription.
// Only the client can end a handshake with a Redis that does not reply, after its ReadTimeout; the
// Cache receives nothing from it after Close. Calls that come after the start of Close return
// ErrClosed, even if Close returns an error. With Memory.Report, messages whose keys were evicted
// earlier are reported. A second Close waits again. The Redis client stays open.
func (c *Cache) Close() error {
	c.run.close()
	c.memory.close() // while its invalidations still arrive
	c.run.end()
	return c.run.wait(c.config.HardTimeout+3*c.config.Timeout, c.config.Timeout)
}

// report sends what the listener has recorded. After Close, it first waits for the message that the
// listener works on, at most for Timeout.
func (c *Cache) report(ctx context.Context) {
	if c.run.life.Err() != nil {
		select {
		case <-c.listener.ended:
		case <-time.After(c.config.Timeout):
		}
	}
	c.reports.report(ctx)
}

// Clear empties L1. Values that were requested before do not enter it. Clear does not change Redis,
// and Redis stores the results of running loads.
func (c *Cache) Clear() { c.memory.clear() }

// Healthy returns nil if values are cached as configured. Otherwise the error is the reason:
//
//   - Redis is unavailable: every call loads and nothing is stored;
//   - Redis has refused the latest value, because it has no memory left (ErrRedisOutOfMemory) or a
//     permission is missing;
//   - Config.Lease is longer than the lease of the map;
//   - the workers write to another server or database;
//   - L1 is closed because no worker's messages arrive;
//   - old entries prove that workers unlink keys elsewhere (ErrUnlinkedElsewhere);
//   - invalidation is behind (ErrBehind);
//   - L1 keeps nothing (ErrMemoryOverflow);
//   - Close was called.
//
// It sends nothing.
func (c *Cache) Healthy() error {
	if c.run.life.Err() != nil {
		return ErrClosed
	}
	if err := c.redis.healthy(); err != nil {
		return err
	}
	if err := c.redis.writes.healthy(); err != nil {
		return err
	}
	if err := c.redis.alive.healthy(); err != nil {
		return err
	}
	return c.memory.healthy()
}

// name returns the key in Redis.
func (c *Cache) name(key string) string {
	if c.config.Prefix == "" {
		return key
	}
	return c.config.Prefix + key
}

// policy returns the one to use, checked against the Cache.
func (c *Cache) policy(p *Policy) (*Policy, error) {
	p = p.on(c.config.Policy)
	if c.config.Plain && !p.plain {
		return nil, errors.New("the policy has tags, a stale time, sliding or negative results, which a plain cache has no room for")
	}
	return p, nil
}
