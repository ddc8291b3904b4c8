package history

import (
	"context"
	"time"

	"github.com/unstale/unstale/internal/keyspace"
)

// A Redis calls a function with what Redis holds. It returns an error if there is no Redis.
type Redis func(ask func(*keyspace.Contents) error) error

// A Now is the current state of a key in Redis.
type Now struct {
	InRedis *bool `json:"in_redis"` // null: not known
	// of an entry of package cache, by the clock of Redis; null: not known
	BornAt  *time.Time `json:"born_at"`
	Unknown string     `json:"unknown,omitempty"`
}

// LookNow reads a key. An error becomes part of the result.
func LookNow(ctx context.Context, in Redis, key string) *Now {
	var present keyspace.Present
	err := in(func(redis *keyspace.Contents) (err error) {
		present, err = redis.Present(ctx, key)
		return err
	})
	if err != nil {
		return &Now{Unknown: err.Error()}
	}
	n := &Now{InRedis: &present.Exists}
	if !present.Born.IsZero() {
		n.BornAt = &present.Born
	}
	return n
}
