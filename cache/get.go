package cache

import (
	"context"
	"fmt"
	"time"
)

// Get returns the value of a key if it is cached and has not expired: ErrMiss where it is not, ErrNotFound where a loader
// is known to find nothing. Other errors are Redis'; the context's; ErrClosed.
func Get[T any](ctx context.Context, c *Cache, key string) (T, error) {
	if value, ok := remembered[T](c, key, nil); ok {
		return value, nil
	}
	return cached[T](ctx, c, key, nil)
}

// cached is Get after a look into memory, where p has no Checker.
func cached[T any](ctx context.Context, c *Cache, key string, p *Policy) (T, error) {
	var none T
	r, err := newRequest[T](c, key, p)
	if err != nil {
		return none, err
	}
	switch s, err := c.standing(ctx, p); {
	case err != nil:
		return none, err
	case s == loaded:
		c.counts.read(absent)
		return none, ErrMiss
	case s == anything && p != nil:
		if value, ok := inMemory[T](c, key, p); ok {
			return value, nil
		}
	}
	mark := c.memory.mark()
	found, err := r.read(ctx)
	if err != nil {
		return none, fmt.Errorf("get: %w", err)
	}
	c.counts.read(found.state)
	switch {
	case found.state < stale:
		return none, ErrMiss
	case found.entry.Negative != 0:
		return none, ErrNotFound
	case found.state == fresh:
		r.keep(found, mark)
	}
	value, _ := found.value.(T)
	return value, nil
}

// Has reports whether Redis holds a value of a key that counts, whatever its type. The error is Redis' or the context's.
func (c *Cache) Has(ctx context.Context, key string) (bool, error) {
	found, err := c.untyped(key).read(ctx)
	if err != nil {
		return false, fmt.Errorf("has: %w", err)
	}
	return found.state >= stale && found.entry.Negative == 0, nil
}

// untyped is a request that looks at no value.
func (c *Cache) untyped(key string) *request {
	return &request{c: c, key: key, name: c.name(key), p: c.config.Policy, decode: func(Codec, []byte) (any, error) { return nil, nil }}
}

// Expire gives a cached value another time to live from now on, and reports whether it did: not where there is none that
// counts, or where it was replaced or invalidated meanwhile. Its stale times end with its life. The error is Redis' or the
// context's.
func (c *Cache) Expire(ctx context.Context, key string, ttl time.Duration) (bool, error) {
	if ttl < time.Millisecond || ttl > longestTTL {
		return false, fmt.Errorf("expire: the time is %v, wanted a millisecond to %v", ttl, longestTTL)
	}
	r := c.untyped(key)
	found, err := r.read(ctx)
	if err != nil || found.state < stale {
		return false, wrapped("expire", err)
	}
	text := found.text
	if !c.config.Plain {
		e := found.entry
		e.Expiry, e.Stale, e.OnError = c.redis.clock.now()+ttl.Milliseconds(), 0, 0
		text = e.appendTo(nil)
	}
	calls := []call{{expireScript, []string{r.name}, []any{digest(found.text), text, ttl.Milliseconds()}}}
	done, err := send(ctx, c.redis, "expire", func(ctx context.Context) (bool, error) {
		cmds, _, err := c.redis.run(ctx, calls, nil)
		if err != nil {
			return false, err
		}
		return cmds[0].Bool()
	})
	c.memory.evictOwn([]string{r.name})
	return done, wrapped("expire", err)
}

func wrapped(verb string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", verb, err)
}
