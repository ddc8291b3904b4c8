package servers_test

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"testing"
	"time"

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
	options.ContextTimeoutEnabled = true
	options.MaxRetries = -1
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

func TestRedisKeepsNothingByDefault(t *testing.T) {
	t.Parallel()
	r, client := startRedis(t, servers.RedisOptions{})
	if err := client.Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if err := r.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n, err := client.DBSize(t.Context()).Result(); err != nil || n != 0 {
		t.Fatalf("DBSIZE = %d, %v after Restart, want 0", n, err)
	}
}

func TestRedisVersionIsTheServersOwn(t *testing.T) {
	t.Parallel()
	r, client := startRedis(t, servers.RedisOptions{})
	info, err := client.Info(t.Context(), "server").Result()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(info, "_version:"+r.Version()+"\r\n") {
		t.Fatalf("Version() = %q, INFO returned %q", r.Version(), info)
	}
}

func TestRedisWithPasswordIsReady(t *testing.T) {
	t.Parallel()
	r, client := startRedis(t, servers.RedisOptions{Args: []string{"--requirepass", "open sesame"}})
	if err := client.Ping(t.Context()).Err(); err == nil || !strings.HasPrefix(err.Error(), "NOAUTH") {
		t.Fatalf("PING = %v, want NOAUTH", err)
	}
	if r.Version() == "" {
		t.Fatal("no version")
	}
}

func TestRedisReadsConfig(t *testing.T) {
	t.Parallel()
	_, client := startRedis(t, servers.RedisOptions{Config: "maxmemory 77mb\n"})
	got, err := client.ConfigGet(t.Context(), "maxmemory").Result()
	if err != nil || got["maxmemory"] != "80740352" {
		t.Fatalf("maxmemory = %v, %v, want 80740352", got, err)
	}
}

func TestPauseFreezesAndResumeThaws(t *testing.T) {
	t.Parallel()
	r, client := startRedis(t, servers.RedisOptions{})
	for range 3 {
		if err := r.Pause(); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		var timeout net.Error
		if err := client.Ping(ctx).Err(); !errors.As(err, &timeout) || !timeout.Timeout() {
			t.Fatalf("PING of a paused server = %v, want a timeout", err)
		}
		if err := r.Resume(); err != nil {
			t.Fatal(err)
		}
		if err := client.Ping(t.Context()).Err(); err != nil {
			t.Fatalf("PING after Resume: %v", err)
		}
	}
}

func TestPausedServerCanBeStoppedAndKilled(t *testing.T) {
	t.Parallel()
	r, _ := startRedis(t, servers.RedisOptions{})
	for _, end := range []func() error{func() error { return r.Stop(t.Context()) }, r.Kill} {
		if err := r.Pause(); err != nil {
			t.Fatal(err)
		}
		if err := end(); err != nil {
			t.Fatal(err)
		}
		if err := r.Pause(); !errors.Is(err, os.ErrProcessDone) {
			t.Fatalf("Pause of an ended server = %v, want %v", err, os.ErrProcessDone)
		}
		if err := r.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestCloseRemovesEverything(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r, client := startRedis(t, servers.RedisOptions{Dir: dir})
	for range 2 {
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := client.Ping(t.Context()).Err(); err == nil {
		t.Fatal("PING works after Close")
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Fatalf("left behind: %v, %v", left, err)
	}
	if err := r.Restart(t.Context()); !errors.Is(err, servers.ErrClosed) {
		t.Fatalf("Restart after Close = %v, want ErrClosed", err)
	}
}

func TestServerThatDiesAtStartShowsItsLog(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	_, err := servers.StartRedis(t.Context(), servers.RedisOptions{Dir: dir, Args: []string{"--no-such-option", "1"}})
	if err == nil || !strings.Contains(err.Error(), "start Redis: ") || !strings.Contains(err.Error(), "no-such-option") {
		t.Fatalf("StartRedis = %v, want what the server printed", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Fatalf("left behind: %v, %v", left, err)
	}
}

func TestRestartWaitsForItsPort(t *testing.T) {
	t.Parallel()
	r, client := startRedis(t, servers.RedisOptions{})
	if err := r.Kill(); err != nil {
		t.Fatal(err)
	}
	thief, err := net.Listen("tcp4", r.Addr())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	err = r.Restart(ctx)
	if closed := thief.Close(); closed != nil {
		t.Fatal(closed)
	}
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("Restart while another process has the port = %v, want %v", err, context.DeadlineExceeded)
	}
	if err := r.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := client.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
}
