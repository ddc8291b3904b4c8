package cache

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"
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
	c.redis.replica.probed.Add(-int64(probePause)) // half a minute later
	fetch(FromLoader)
	if err := c.Healthy(); err == nil || !strings.Contains(err.Error(), "replica") {
		t.Errorf("healthy: %v", err)
	}
}
