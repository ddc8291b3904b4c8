package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/unstale/unstale/internal/keyspace"
)

// A now is what Redis holds under the key that was asked for.
type now struct {
	InRedis *bool      `json:"in_redis"` // null: not known
	BornAt  *time.Time `json:"born_at"`  // of an entry of package cache, by the clock of Redis; null: not known
	Unknown string     `json:"unknown,omitempty"`
}

// lookNow looks at the key. Whatever is in the way, the journal's part of the answer stands.
func (h *historyCommand) lookNow(ctx context.Context) *now {
	if h.redis.url == "" {
		return &now{Unknown: errNoRedisURL.Error()}
	}
	var present keyspace.Present
	err := h.withRedis(func(redis *keyspace.Keyspace) (err error) {
		present, err = redis.Present(ctx, h.query.Key)
		return err
	})
	if err != nil {
		return &now{Unknown: err.Error()}
	}
	n := &now{InRedis: &present.Exists}
	if !present.Born.IsZero() {
		n.BornAt = &present.Born
	}
	return n
}

func (h *historyCommand) withRedis(ask func(*keyspace.Keyspace) error) error {
	options, err := h.redis.options()
	if err != nil {
		return err
	}
	redis, err := keyspace.Open(options)
	if err != nil {
		return err
	}
	return errors.Join(ask(redis), redis.Close())
}

func printNow(p process, n *now) {
	text := "not in Redis"
	switch {
	case n.InRedis == nil:
		text = "unknown: " + n.Unknown
	case *n.InRedis && n.BornAt == nil:
		text = "in Redis, since when is unknown: it is no entry of package cache"
	case *n.InRedis:
		text = "in Redis, an entry that was born at " + n.BornAt.Format(time.RFC3339Nano)
	}
	fmt.Fprintf(p.Out, "now: %s\n", printable(text))
}
