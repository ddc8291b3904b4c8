package main

import (
	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/store"
)

// openBoard opens the Redis of the flags, if they name one. The function that it returns closes it.
func (c *statusCommand) openBoard() (shut func() error, err error) {
	if c.redis.url.text == "" {
		return func() error { return nil }, nil
	}
	keyspace.SetClientLog(nil)
	options, err := c.redis.options()
	if err != nil {
		return nil, err
	}
	k, err := keyspace.Open(options)
	if err != nil {
		return nil, err
	}
	c.space = k
	return k.Close, nil
}

// The values of workers_in_redis.
const (
	redisRead       = "read"
	redisNotGiven   = "not given"
	redisUnreadable = "unreadable"
)

// workersInRedis returns one of these, and a line for people where they do not know all workers.
func workersInRedis(s store.Status) (state, line string) {
	switch {
	case !s.AskedRedis:
		return redisNotGiven, "as MySQL knows them; --redis-url adds the status that they publish in Redis, even while MySQL refuses writes"
	case s.RedisError != nil:
		return redisUnreadable, "as MySQL knows them; the status that they publish in Redis cannot be read: " + s.RedisError.Error()
	}
	return redisRead, ""
}
