package cache

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
)

// Get returns the value of a key if it is cached and has not expired. It returns ErrMiss if there
// is no value, and ErrNotFound for a negative result. A value in its stale time has expired: only
// Fetch returns it, since it loads a new one. Config.Policy decides which values count. Other
// errors come from Redis or from the context, or are ErrClosed.
func Get[T any](ctx context.Context, c *Cache, key string) (T, error) {
	p := c.config.Policy
	if result, ok := remembered[T](c, key, p, 0); ok {
		return result.Value, nil
	}
	return cached[T](ctx, c, key, p)
}

// cached implements Get after a lookup in L1, for a policy without Checker.
func cached[T any](ctx context.Context, c *Cache, key string, p *Policy) (T, error) {
	var none T
	r, err := newRequest[T](c, key, p, 0)
	if err != nil {
		return none, err
	}
	switch s, err := c.standing(ctx, p); {
	case err != nil:
		return none, err
	case s == loaded:
		c.counts.read(absent)
		if err := ctx.Err(); err != nil {
			return none, fmt.Errorf("get: %w", err)
		}
		return none, ErrMiss
	case s == anything && p.after != nil: // otherwise memory was asked before
		if result, ok := inMemory[T](c, key, p, 0); ok {
			return result.Value, nil
		}
	}
	mark := c.memory.mark()
	found, err := r.read(ctx)
	if found.state < fresh {
		found.state = absent
	}
	c.counts.read(found.state)
	switch {
	case err != nil:
		return none, fmt.Errorf("get: %w", err)
	case found.state < fresh:
		return none, ErrMiss
	case found.entry.Negative != 0:
		return none, ErrNotFound
	}
	r.keep(found, mark)
	value, _ := found.value.(T)
	return value, nil
}

// Has reports whether Redis holds a value of a key that counts and has not expired. It does not
// decode the value: Get finds none if it is damaged or of another type. The error comes from Redis
// or from the context, or is ErrClosed.
func (c *Cache) Has(ctx context.Context, key string) (bool, error) {
	if c.run.life.Err() != nil {
		return false, ErrClosed
	}
	found, err := c.untyped(key).read(ctx)
	if err != nil {
		return false, fmt.Errorf("has: %w", err)
	}
	return found.state == fresh && found.entry.Negative == 0, nil
}

// untyped returns a request that looks at no value.
func (c *Cache) untyped(key string) *request {
	return &request{c: c, key: key, name: c.name(key), p: c.config.Policy, decode: wholeJSON, untyped: true}
}

// wholeJSON ignores the value. It is the decode function of a request that does not use it. Only
// JSON can find the end of a JSON value.
func wholeJSON(codec Codec, data []byte) (any, error) {
	if codec == JSON && !json.Valid(data) {
		return nil, errCorrupt
	}
	return nil, nil
}

// Expire sets a new time to live of a cached value, from now, and reports whether it did. It does
// not if Has reports no value, so not for a negative result, or if the value was replaced or
// invalidated meanwhile. Its stale times end with its life, a sliding value no longer slides, and a
// value with tags ends with their versions: see Fill.TTL. Other processes may keep it in L1 as long
// as before: to remove a value, use Delete and the outbox. The error comes from Redis or from the
// context, or is ErrClosed.
func (c *Cache) Expire(ctx context.Context, key string, ttl time.Duration) (bool, error) {
	if ttl < time.Millisecond || ttl > longestTTL {
		return false, fmt.Errorf("expire: the time is %v, wanted a millisecond to %v", ttl, longestTTL)
	}
	if c.run.life.Err() != nil {
		return false, ErrClosed
	}
	r := c.untyped(key)
	found, err := r.read(ctx)
	if err != nil || found.state < fresh || found.entry.Negative != 0 {
		return false, wrapped("expire", err)
	}
	text := found.text
	if !c.config.Plain {
		e := found.entry
		e.Expiry, e.Stale, e.OnError, e.Idle = c.redis.clock.now()+ttl.Milliseconds(), 0, 0, 0
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
