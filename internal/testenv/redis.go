package testenv

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/servers"
)

// A RedisServer is an empty Redis database for one test.
type RedisServer struct {
	URL     string        // names the database number too
	Client  *redis.Client // closed at the end of the test
	Version string        // of INFO: valkey_version, or redis_version

	token string
}

// Channel returns a channel name that no other test uses. Channels are global to the server, which
// other tests may share.
func (r *RedisServer) Channel(name string) string { return name + ":" + r.token }

// Redis returns an empty Redis database for the test: a separate server process if servers are
// local, otherwise a database number of a server that other tests share.
func Redis(t testing.TB) *RedisServer {
	t.Helper()
	chosen, err := chooseRedis()
	if err != nil {
		t.Fatal(err)
	}
	var url, name, version string
	if chosen.pool != nil {
		url, name, version = chosen.pool.forTest(t), chosen.pool.product, chosen.pool.version
	} else {
		r, err := chosen.settings.localRedis(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		})
		url, name, version = r.URL(), r.Program().Name, r.Version()
	}
	options, err := redis.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(options)
	t.Cleanup(func() { _ = client.Close() })
	run.use(name, servers.ShortVersion(version), chosen.from)
	return &RedisServer{URL: url, Client: client, Version: version, token: token()}
}

// redisChoice is the source of Redis for the tests of a binary.
type redisChoice struct {
	settings settings
	from     source
	pool     *databasePool // nil if every test starts its own server
}

var chooseRedis = sync.OnceValues(func() (*redisChoice, error) {
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	s, err := readSettings(os.Getenv)
	if err != nil {
		return nil, err
	}
	sources, err := s.sources(redisVariable, s.redisURL)
	if err != nil {
		return nil, err
	}
	pool, from, err := choose("Redis", sources, func(from source) (*databasePool, error) {
		switch from {
		case fromEnv:
			return newDatabasePool(ctx, s.redisURL)
		case fromDocker:
			url, err := docker(ctx, "redis", s.redisImage)
			if err != nil {
				return nil, err
			}
			return newDatabasePool(ctx, url)
		default:
			_, err := s.redisProgram()
			return nil, err
		}
	}, run.say)
	if err != nil {
		return nil, fmt.Errorf("choose a Redis: %w", err)
	}
	if pool != nil {
		shared.add(pool.close)
	}
	return &redisChoice{settings: s, from: from, pool: pool}, nil
})
