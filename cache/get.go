package cache

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/unstale/unstale/protocol"
)

// Get returns the value of a key if it is cached and has not expired. It returns ErrMiss if there
// is no value, and ErrNotFound for a negative result. A value in its stale time has expired: only
// Fetch returns it, since it loads a new one. Config.Policy decides which values count. Other
// errors come from Redis or from the context, or are ErrClosed.
func Get[T any](ctx context.Context, c *Cache, key string) (T, error) {
	p := c.config.Policy
	if p.after == nil {
		if result, ok := inMemory[T](c, key, p, 0); ok {
			return result.Value, nil
		}
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
	switch s, err := c.readConstraint(ctx, p); {
	case err != nil:
		return none, err
	case s == loaded:
		c.counts.countRead(absent)
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
	found, err := r.readValue(ctx)
	if found.state < fresh {
		found.state = absent
	}
	c.counts.countRead(found.state)
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
	found, err := c.untyped(key).readValue(ctx)
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
	found, err := r.readValue(ctx)
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
		cmds, _, err := c.redis.runScripts(ctx, calls, nil)
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

// Delete deletes keys from Redis and from this process. No load that began earlier stores them
// again. Other processes may keep them in L1: an invalidation that must reach them goes through the
// outbox. The error is ErrClosed, or an *InvalidationError with the keys that may not be deleted
// from Redis. Calling Delete again with those is harmless.
func (c *Cache) Delete(ctx context.Context, keys ...string) error {
	return wrapped("delete", c.unlink(ctx, keys, c.name))
}

// DeleteTag is like Delete, for tags: values that have one of them no longer count.
func (c *Cache) DeleteTag(ctx context.Context, tags ...string) error {
	return wrapped("delete tag", c.unlink(ctx, tags, protocol.StampKey))
}

// unlinkMost is how many keys one pipeline unlinks.
const unlinkMost = 500

// unlink deletes keys from Redis, each with its lease in one command, and then from this process.
// In the other order, a concurrent reader could copy the old value from Redis to L1. name returns
// the name of a key in Redis.
func (c *Cache) unlink(ctx context.Context, keys []string, name func(string) string) error {
	if c.run.life.Err() != nil {
		return ErrClosed
	}
	names := make([]string, len(keys))
	for i, key := range keys {
		names[i] = name(key)
	}
	var left []string
	var faults []error
	for at := 0; at < len(names); at += unlinkMost {
		chunk := names[at:min(at+unlinkMost, len(names))]
		for i, fault := range c.unlinkChunk(ctx, chunk) {
			if fault == nil {
				continue
			}
			left = append(left, keys[at+i])
			if !slices.ContainsFunc(faults, func(known error) bool { return known.Error() == fault.Error() }) {
				faults = append(faults, fault)
			}
		}
	}
	for _, name := range names {
		c.flights.drop(name)
	}
	c.counts.deleted.Add(uint64(len(names)))
	c.memory.evictOwn(names)
	if c.redis.client == nil || len(left) == 0 {
		return nil
	}
	return &InvalidationError{left, len(keys) - len(left), errors.Join(faults...)}
}

// unlinkChunk sends one pipeline. It returns the fault of each name, or nil if the name is gone.
func (c *Cache) unlinkChunk(ctx context.Context, names []string) []error {
	cmds, err := send(ctx, c.redis, "unlink", func(ctx context.Context) ([]redis.Cmder, error) {
		cmds, err := c.redis.pipelined(ctx, askFirst, func(p redis.Pipeliner) error {
			for _, name := range names {
				if lease, ok := protocol.LeaseKey(name); ok {
					p.Unlink(ctx, lease, name)
				} else {
					p.Unlink(ctx, name)
				}
			}
			return nil
		})
		for _, cmd := range cmds {
			if fault := classify(cmd.Err()); fault != nil {
				err = fault // which says more than a refusal for the sake of one key
			}
		}
		return cmds, err
	})
	faults := faultsOf(cmds, len(names), err)
	if firstError(cmds) == nil {
		return faults
	}
	for i, fault := range faults {
		if fault = classify(fault); fault == nil {
			continue
		}
		if faults[i] = fault; ctx.Err() != nil {
			faults[i] = ctx.Err() // which says nothing about Redis
		}
	}
	return faults
}

// A Lease is the right to store one value: see Cache.Lease.
type Lease struct {
	j *job
}

// Lease takes the lease of a key, for a value that the caller obtains and stores with Set. Take it
// before reading anything that the value depends on: an invalidation ends it. ErrTaken means that
// another caller fills the key, or that no value may be stored now. Other errors come from Redis or
// from the context, or are ErrClosed. A nil policy is Config.Policy. Pass the lease to Set or call
// Release; otherwise other callers wait for it until Config.Lease ends. Lease does not read the
// value of the key: see Set.
func (c *Cache) Lease(ctx context.Context, key string, p *Policy) (*Lease, error) {
	p, err := c.policy(p)
	if err != nil {
		return nil, err
	}
	if c.run.life.Err() != nil {
		return nil, ErrClosed
	}
	r := &request{c: c, key: key, name: c.name(key), p: p}
	j := r.job(alone(flightID{name: r.name}), reading{})
	j.useless = anyValue
	if !j.names.ok || !stampable(j.tags) {
		return nil, fmt.Errorf("take lease: %w: the braces of the key or a tag leave it without one, or a tag is not UTF-8", ErrTaken)
	}
	mark := c.memory.mark()
	g, err := j.takeLease(ctx)
	switch {
	case err != nil:
		return nil, wrapped("take lease", err)
	case g.kind != "lease":
		return nil, fmt.Errorf("take lease: %w for another %v", ErrTaken, g.wait.Round(time.Millisecond))
	}
	j.granted(g, mark)
	return &Lease{j}, nil
}

// Set stores a value under a lease and uses the lease up. Like SET, it replaces any value of the
// key, even an entry of another format or codec, or a key of another type, which Fetch leaves
// alone. ErrLeaseLost means that it was not stored, and that the value may be old: an invalidation
// came, or Config.Lease has ended. Other errors are ErrSerialization, those of Redis and of the
// context, and ErrClosed.
func Set[T any](ctx context.Context, l *Lease, value T) error {
	if l.j.request.c.run.life.Err() != nil {
		l.Release(context.WithoutCancel(ctx))
		return ErrClosed
	}
	j := *l.j
	j.request.kind, j.cost = reflect.TypeFor[T](), time.Since(j.taken)
	o := outcome{value: value}
	stored, err := j.fillWith(ctx, &Fill{}, &o)
	switch {
	case err != nil:
		j.request.c.counts.failed()
		l.Release(context.WithoutCancel(ctx))
		return wrapped("set", err)
	case !stored || !o.accepted:
		l.Release(context.WithoutCancel(ctx))
		return ErrLeaseLost
	}
	return nil
}

// Release releases an unused lease. It can be called at any time, more than once, and after Close.
func (l *Lease) Release(ctx context.Context) { l.j.request.c.giveBack(ctx, l.j) }
