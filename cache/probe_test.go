package cache

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/protocol"
)

// A reader that has seen workers at the master, and whose new connections lead to a replica,
// notices that even if there are only hits: a write probe goes along every 30 s.
func TestReplicaIsProbed(t *testing.T) {
	t.Parallel()
	master := testenv.OwnRedis(t, "--repl-diskless-sync-delay", "0")
	replica := testenv.OwnRedis(t, "--replicaof", "127.0.0.1 "+fmt.Sprint(master.Port()))
	var at atomic.Pointer[string]
	to := func(addr string) { at.Store(&addr) }
	to(master.Addr())
	inside := redis.NewClient(&redis.Options{Addr: replica.Addr()})
	t.Cleanup(func() { _ = inside.Close() })
	client := redis.NewClient(&redis.Options{
		ContextTimeoutEnabled: true, ConnMaxLifetime: time.Millisecond,
		Dialer: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, *at.Load())
		},
	})
	t.Cleanup(func() { _ = client.Close() })
	text := protocol.Alive{Time: time.Now().Add(time.Hour).UnixMicro()}.String()
	if err := client.HSet(t.Context(), protocol.AliveKey(""), "shop", text).Err(); err != nil {
		t.Fatal(err)
	}
	c, err := New(Config{Redis: client, Timeout: 5 * time.Second, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	fetch := func(want Source) {
		t.Helper()
		got, err := FetchResult(t.Context(), c, "k", func(context.Context) (string, error) { return "v", nil }, nil)
		if err != nil || got.Source != want {
			t.Fatalf("from %v, %v, wanted %v", got.Source, err, want)
		}
	}
	fetch(FromLoader)
	testenv.Eventually(t, "replication", func() bool { return inside.Exists(t.Context(), "k", protocol.AliveKey("")).Val() == 2 })
	to(replica.Addr())
	testenv.Eventually(t, "connections to the replica", func() bool {
		role, _ := client.Do(t.Context(), "role").Slice()
		return len(role) > 0 && role[0] == "slave"
	})
	fetch(FromRedis)
	c.redis.replica.next.Store(0) // half a minute later
	fetch(FromLoader)
	if err := c.Healthy(); err == nil || !strings.Contains(err.Error(), "replica") {
		t.Errorf("healthy: %v", err)
	}
}

// If no worker writes to a server any more, a write probe goes along once per second. A master that
// was demoted at a fixed address is noticed within that second, even if there are only hits. The
// time here is the reader's; the age of a field is by the clock of the server.
func TestDemotedMasterIsProbed(t *testing.T) {
	t.Parallel()
	server := testenv.OwnRedis(t)
	synctest.Test(t, func(t *testing.T) {
		client := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true})
		t.Cleanup(func() { _ = client.Close() })
		do := func(args ...any) {
			t.Helper()
			if err := client.Do(t.Context(), args...).Err(); err != nil {
				t.Fatal(err)
			}
		}
		wrote := func(ago time.Duration) {
			t.Helper()
			now, err := client.Time(t.Context()).Result()
			if err != nil {
				t.Fatal(err)
			}
			do("hset", protocol.AliveKey(""), "shop", protocol.Alive{Time: now.Add(-ago).UnixMicro()}.String())
		}
		c, err := New(Config{Redis: client, Timeout: 5 * time.Second, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		fetch := func() Source {
			got, err := FetchResult(t.Context(), c, "k", func(context.Context) (string, error) { return "v", nil }, nil)
			if err != nil || got.Value != "v" {
				t.Error(got.Value, err)
			}
			return got.Source
		}
		// probes returns how many probes the hits of that time make.
		probes := func(of time.Duration) (n int) {
			t.Helper()
			do("config", "resetstat")
			for end := time.Now().Add(of); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
				var group sync.WaitGroup
				for range 3 {
					group.Go(func() {
						if from := fetch(); from != FromRedis {
							t.Errorf("from %v, wanted Redis", from)
						}
					})
				}
				group.Wait()
			}
			calls := client.InfoMap(t.Context(), "commandstats").Val()["Commandstats"]["cmdstat_unlink"]
			_, _ = fmt.Sscanf(calls, "calls=%d", &n)
			return n
		}
		wrote(-time.Hour)
		fetch()
		if n := probes(29 * time.Second); n > 0 {
			t.Errorf("%d probes while a worker writes", n)
		}
		wrote(protocol.AliveLife*time.Microsecond + time.Second)
		if n := probes(10 * time.Second); n < 9 || n > 10 {
			t.Errorf("%d probes in 10 s without a worker", n)
		}
		do("replicaof", "127.0.0.1", "1") // where no server is
		demoted := time.Now()
		for fetch() == FromRedis {
			time.Sleep(100 * time.Millisecond)
		}
		if took := time.Since(demoted); took > time.Second {
			t.Errorf("a demoted master was read for %v", took)
		}
		wantReplica := func(when string) {
			t.Helper()
			if err := c.Healthy(); err == nil || !strings.Contains(err.Error(), "replica") {
				t.Errorf("%s: healthy: %v", when, err)
			}
		}
		wantReplica("after a refusal")
		if err := server.Kill(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(replicaPause)
		fetch() // its probe is not answered
		wantReplica("after the server is gone")
	})
}
