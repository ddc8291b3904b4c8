package testenv

import (
	"context"
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/servers"
)

// A RedisServer is an empty Redis database for one test.
type RedisServer struct {
	URL     string        // names the database number too
	Client  *redis.Client // closed at the end of the test
	Version string        // redis_version of INFO

	token string
}

// Channel returns a channel name that no other test uses. Channels are common
// to all databases of a Redis server, which other tests may share.
func (r *RedisServer) Channel(name string) string { return name + ":" + r.token }

// Redis returns an empty Redis database of the test's own.
func Redis(t testing.TB) *RedisServer {
	t.Helper()
	url, version, err := redisForTest(t)
	if err != nil {
		t.Fatal(err)
	}
	options, err := redis.ParseURL(url)
	if err != nil {
		t.Fatal(fmt.Errorf("read test Redis URL: %w", err))
	}
	client := redis.NewClient(options)
	t.Cleanup(func() { _ = client.Close() })
	return &RedisServer{URL: url, Client: client, Version: version, token: token()}
}

func redisForTest(t testing.TB) (url, version string, err error) {
	s, err := readSettings(osGetenv)
	if err != nil {
		return "", "", err
	}
	r, err := s.startLocalRedis(t.Context())
	if err != nil {
		return "", "", err
	}
	t.Cleanup(func() { _ = r.Close() })
	note(servers.KindRedis.String(), r.Version(), fromLocal)
	return r.URL(), r.Version(), nil
}

func (s settings) startLocalRedis(ctx context.Context, args ...string) (*servers.Redis, error) {
	return servers.StartRedis(ctx, servers.RedisOptions{Args: args})
}
