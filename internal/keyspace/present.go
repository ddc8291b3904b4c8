package keyspace

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

// A Present is the state of a key in Redis.
type Present struct {
	Exists bool
	// Born is when the lease of the entry was taken, by the clock of Redis. Zero: unknown, since it
	// is not an entry of package cache.
	Born time.Time
}

// Present looks at a key. The account needs +get, and no right to the key's contents beyond that.
// An error is an *Outage.
func (c *Contents) Present(ctx context.Context, key string) (Present, error) {
	text, err := c.nodes.client.Get(ctx, key).Bytes()
	switch {
	case errors.Is(err, redis.Nil):
		return Present{}, nil
	case firstWord(err) == "WRONGTYPE":
		return Present{Exists: true}, nil
	case err != nil:
		return Present{}, c.nodes.outage(ctx, err)
	}
	var entry struct {
		Born int64 `json:"b"` // microseconds since 1970
	}
	// In format 2 the value follows.
	if json.NewDecoder(bytes.NewReader(text)).Decode(&entry) != nil || entry.Born == 0 {
		return Present{Exists: true}, nil
	}
	return Present{Exists: true, Born: time.UnixMicro(entry.Born).UTC()}, nil
}

// TTL returns how long a key still lives: -1 if it does not expire, and -2 if it does not exist.
// The account needs +pttl. An error is an *Outage.
func (c *Contents) TTL(ctx context.Context, key string) (time.Duration, error) {
	ttl, err := c.nodes.client.PTTL(ctx, key).Result()
	if err != nil {
		return 0, c.nodes.outage(ctx, err)
	}
	return ttl, nil
}

// Heads returns the first HeadBytes bytes of texts in Redis, "" for a key that does not exist. The
// account needs +getrange. An error is an *Outage.
func (c *Contents) Heads(ctx context.Context, keys []string) ([]string, error) {
	heads := make([]string, len(keys))
	cmds, err := c.nodes.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, key := range keys {
			p.GetRange(ctx, key, 0, HeadBytes-1)
		}
		return nil
	})
	for i, cmd := range cmds {
		switch text, failed := cmd.(*redis.StringCmd).Result(); {
		case failed == nil:
			heads[i] = text
		case firstWord(failed) == "WRONGTYPE":
			heads[i] = failed.Error() // the key has another type
			if errors.Is(err, failed) {
				err = nil
			}
		default:
			return nil, c.nodes.outage(ctx, failed)
		}
	}
	if err != nil {
		return nil, c.nodes.outage(ctx, err)
	}
	return heads, nil
}

// Time returns the time of the server that has a key. Present.Born is by the same clock.
// The account needs +time. An error is an *Outage.
func (c *Contents) Time(ctx context.Context, key string) (time.Time, error) {
	command := newTimeCommand(ctx, key)
	if err := c.nodes.client.Process(ctx, command); err != nil {
		return time.Time{}, c.nodes.outage(ctx, err)
	}
	return command.Val(), nil
}
