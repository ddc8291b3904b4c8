package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/unstale/unstale/internal/keyspace"
)

// A now is the current state of the requested key in Redis.
type now struct {
	InRedis *bool `json:"in_redis"` // null: not known
	// of an entry of package cache, by the clock of Redis; null: not known
	BornAt  *time.Time `json:"born_at"`
	Unknown string     `json:"unknown,omitempty"`
}

// lookNow reads the key. On any error, the part from the journal stays.
func (h *historyCommand) lookNow(ctx context.Context) *now {
	if h.redis.url.text == "" {
		return &now{Unknown: errNoRedisURL.Error()}
	}
	var present keyspace.Present
	err := h.withRedis(func(redis *keyspace.Contents) (err error) {
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

func (h *historyCommand) withRedis(ask func(*keyspace.Contents) error) error {
	options, err := h.redis.options()
	if err != nil {
		return err
	}
	redis, err := keyspace.Open(options)
	if err != nil {
		return err
	}
	return errors.Join(ask(redis.Contents), redis.Close())
}

func printNow(p process, n *now) {
	text := "not in Redis"
	switch {
	case n.InRedis == nil:
		text = "unknown: " + n.Unknown
	case *n.InRedis && n.BornAt == nil:
		text = "in Redis, since when is unknown: it is not an entry of package cache"
	case *n.InRedis:
		text = "in Redis, an entry with the lease time " + n.BornAt.Format(time.RFC3339Nano)
	}
	fmt.Fprintf(p.Out, "now: %s\n", printable(text))
}
