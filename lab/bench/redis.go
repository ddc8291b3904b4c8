package bench

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/redisurl"
)

// A redisServer is the Redis that is measured on, and a plain client to it.
type redisServer struct {
	*redis.Client
	url     string
	version string
	private *servers.Redis // nil: a given one
	ours    bool           // it was empty, so everything in it is ours
}

func openRedis(ctx context.Context, url string) (*redisServer, error) {
	c := &redisServer{url: url}
	if url == "" {
		r, err := servers.StartRedis(ctx, servers.RedisOptions{})
		if err != nil {
			return nil, err
		}
		c.private, c.url = r, r.URL()
	}
	options, err := redis.ParseURL(c.url)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("redis url: %w; must be a single server, redis://host:port/db", err), c.close())
	}
	options.MaxRetries = -1
	c.Client = redis.NewClient(options)
	size, err := c.DBSize(ctx).Result()
	if err == nil && size > 0 {
		err = fmt.Errorf("the database has %d keys; give an empty one, which this may fill and empty", size)
	}
	if err != nil {
		return nil, errors.Join(err, c.close())
	}
	c.ours = true
	c.version = c.InfoMap(ctx, "server").Val()["Server"]["redis_version"]
	return c, nil
}

// keyspace opens a Keyspace of the server.
func (c *redisServer) keyspace(o keyspace.Options) (k *keyspace.Keyspace, err error) {
	if o.Redis, err = redisurl.Parse(c.url, false); err != nil {
		return nil, err
	}
	return keyspace.Open(o)
}

// close removes what was written, and ends a private server.
func (c *redisServer) close() error {
	var err error
	if c.Client != nil {
		if c.ours && c.private == nil {
			err = c.FlushDB(context.Background()).Err()
		}
		err = errors.Join(err, c.Client.Close())
	}
	if c.private != nil {
		err = errors.Join(err, c.private.Close())
	}
	return err
}

// fill stores a short value under each of n names.
func (c *redisServer) fill(ctx context.Context, n int, name func(i int) string) error {
	const part = 5000
	for from := 0; from < n; from += part {
		_, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i := from; i < min(from+part, n); i++ {
				p.Set(ctx, name(i), "value", 0)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// scan runs a bare SCAN of all names.
func (c *redisServer) scan(ctx context.Context) error {
	for cursor, first := uint64(0), true; cursor != 0 || first; first = false {
		var err error
		if _, cursor, err = c.Scan(ctx, cursor, "", 1000).Result(); err != nil {
			return err
		}
	}
	return nil
}

// gets asks for a key every millisecond while something runs.
func (c *redisServer) gets(ctx context.Context, while func(context.Context) error) (percentiles, error) {
	over := make(chan error, 1)
	go func() { over <- while(ctx) }()
	var took []float64
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case err := <-over:
			return percentilesOf(took), err
		case <-ticker.C:
		}
		began := time.Now()
		if err := c.Get(ctx, productName(7)).Err(); err != nil {
			return percentiles{}, errors.Join(err, <-over)
		}
		took = append(took, float64(time.Since(began).Nanoseconds())/1e3)
	}
}

// slowest returns the longest of each command in the slow log, in microseconds.
func (c *redisServer) slowest(ctx context.Context) (map[string]int64, error) {
	entries, err := c.SlowLogGet(ctx, -1).Result()
	longest := map[string]int64{}
	for _, e := range entries {
		if len(e.Args) > 0 {
			name := strings.ToLower(e.Args[0])
			longest[name] = max(longest[name], e.Duration.Microseconds())
		}
	}
	return longest, err
}

// slowLog begins a new slow log of what takes longer.
func (c *redisServer) slowLog(ctx context.Context, micros int) error {
	for name, value := range map[string]int{"slowlog-log-slower-than": micros, "slowlog-max-len": 20_000} {
		if err := c.ConfigSet(ctx, name, fmt.Sprint(value)).Err(); err != nil {
			return err
		}
	}
	return c.Do(ctx, "slowlog", "reset").Err()
}
