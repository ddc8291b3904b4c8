package cache

import (
	"context"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/protocol"
)

// Delete takes keys out of Redis and out of this process, so that no load that began before stores them again. Other
// processes may keep them in memory: what must reach those goes through the outbox. An error is Redis' or the context's;
// it is then not known which keys are gone from Redis, and calling again is harmless.
func (c *Cache) Delete(ctx context.Context, keys ...string) error {
	names := make([]string, len(keys))
	for i, key := range keys {
		names[i] = c.name(key)
	}
	return wrapped("delete", c.unlink(ctx, names))
}

// DeleteTag does with tags what Delete does with keys: no value that has one of them counts any more.
func (c *Cache) DeleteTag(ctx context.Context, tags ...string) error {
	names := make([]string, len(tags))
	for i, tag := range tags {
		names[i] = protocol.StampKey(tag)
	}
	return wrapped("delete tag", c.unlink(ctx, names))
}

// unlinkMost is how many keys one pipeline unlinks.
const unlinkMost = 500

// unlink takes names out of Redis, each with its lease in one command, and then out of this process: a reader that comes
// in between would otherwise bring the old value from Redis into memory.
func (c *Cache) unlink(ctx context.Context, names []string) error {
	if c.life.Err() != nil {
		return ErrClosed
	}
	var fault error
	for chunk := range slices.Chunk(names, unlinkMost) {
		_, err := send(ctx, c.redis, "unlink", func(ctx context.Context) (struct{}, error) {
			cmds, err := c.redis.client.Pipelined(ctx, func(p redis.Pipeliner) error {
				for _, name := range chunk {
					if lease, ok := protocol.LeaseKey(name); ok {
						p.Unlink(ctx, lease, name)
					} else {
						p.Unlink(ctx, name)
					}
				}
				return nil
			})
			for _, cmd := range cmds {
				if cmd.Err() != nil {
					return struct{}{}, cmd.Err()
				}
			}
			return struct{}{}, err
		})
		if err != nil && fault == nil {
			fault = fmt.Errorf("unlink keys: %w", err)
		}
	}
	for _, name := range names {
		c.flights.drop(name)
	}
	c.counts.deleted.Add(uint64(len(names)))
	c.memory.evictOwn(names)
	if c.redis.client == nil {
		return nil
	}
	return fault
}
