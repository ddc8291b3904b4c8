package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/unstale/unstale/internal/history"
	"github.com/unstale/unstale/internal/keyspace"
)

var errNoRedisURL = errors.New("no --redis-url is given")

func (h *historyCommand) withRedis(ask func(*keyspace.Contents) error) error {
	if h.redis.url.text == "" {
		return errNoRedisURL
	}
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

func printNow(p process, n *history.Now) {
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
