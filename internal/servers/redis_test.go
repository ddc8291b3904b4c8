package servers_test

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/servers"
)

func startRedis(t *testing.T, o servers.RedisOptions) (*servers.Redis, *redis.Client) {
	t.Helper()
	r, err := servers.StartRedis(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	options, err := redis.ParseURL(r.URL())
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(options)
	t.Cleanup(func() { _ = client.Close() })
	return r, client
}

func TestRedisRestartKeepsDataAndPort(t *testing.T) {
	t.Parallel()
	r, client := startRedis(t, servers.RedisOptions{Args: []string{"--appendonly", "yes", "--appendfsync", "always"}})
	addr, pid := r.Addr(), r.Pid()
	if err := client.Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if err := r.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := client.Get(t.Context(), "k").Err(); err == nil {
		t.Fatal("GET works after Kill")
	}
	if err := r.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r.Addr() != addr || r.Pid() == pid {
		t.Fatalf("address %s, process %d after Restart, want %s and another process", r.Addr(), r.Pid(), addr)
	}
	if v, err := client.Get(t.Context(), "k").Result(); err != nil || v != "v" {
		t.Fatalf("GET = %q, %v after Restart, want v", v, err)
	}
}
