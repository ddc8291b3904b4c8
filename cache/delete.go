package cache

import (
	"context"
	"errors"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/protocol"
)

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
	faults, err := send(ctx, c.redis, "unlink", func(ctx context.Context) ([]error, error) {
		cmds, err := c.redis.pipelined(ctx, func(p redis.Pipeliner) error {
			for _, name := range names {
				if lease, ok := protocol.LeaseKey(name); ok {
					p.Unlink(ctx, lease, name)
				} else {
					p.Unlink(ctx, name)
				}
			}
			return nil
		})
		faults := make([]error, len(cmds))
		for i, cmd := range cmds {
			faults[i] = cmd.Err()
			if fault := classify(cmd.Err()); fault != nil {
				err = fault // which says more than a refusal for the sake of one key
			}
		}
		return faults, err
	})
	if err != nil && !slices.ContainsFunc(faults, func(fault error) bool { return fault != nil }) {
		return slices.Repeat([]error{err}, len(names)) // nothing is known about any
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
