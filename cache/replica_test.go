package cache_test

import (
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/cache"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/protocol"
)

// A replica refuses leases; nothing is read from it then, since it lags behind what the worker
// unlinks.
func TestReplicaIsRefused(t *testing.T) {
	t.Parallel()
	master := testenv.OwnRedis(t, "--repl-diskless-sync-delay", "0")
	replica := testenv.OwnRedis(t, "--replicaof", "127.0.0.1 "+fmt.Sprint(master.Port()))
	w := worldAt(t, master.URL())
	at := worldAt(t, replica.URL())
	c, wrong := w.cache(cache.Config{}), at.cache(cache.Config{})
	wantFetch(t, "at the master", c, "k", w.db.read, nil, "old", cache.FromLoader)
	testenv.Eventually(t, "replication", func() bool { return at.stored("k") != "" })
	_, _ = cache.Fetch(t.Context(), wrong, "other", at.db.read, nil)
	if err := wrong.Healthy(); err == nil || !strings.Contains(err.Error(), "replica") {
		t.Errorf("Healthy says %v", err)
	}
	wantFetch(t, "at the replica", wrong, "k", at.db.read, nil, "old", cache.FromLoader)
}

// The answers of the server reveal a failover client with ReplicaOnly. It is refused even if
// workers are seen, and for as long as it reads a replica. It is logged once.
func TestReplicaOnly(t *testing.T) {
	t.Parallel()
	set := testenv.OwnSentinel(t)
	w := worldAt(t, set.Master.URL())
	at := testenv.Client(t, set.Replica.URL())
	wantFetch(t, "at the master", w.cache(cache.Config{}), "k", w.db.read, nil, "old", cache.FromLoader)
	testenv.Eventually(t, "replication", func() bool { return at.Exists(t.Context(), "k").Val() == 1 })
	for _, alive := range []bool{false, true} {
		if alive {
			text := protocol.Alive{Time: time.Now().Add(time.Minute).UnixMicro(), Lease: 10_000, Map: "m"}.String()
			testenv.Must(t, w.client.HSet(t.Context(), protocol.AliveKey(""), "shop", text).Err())
			testenv.Eventually(t, "replication of a worker's field", func() bool { return at.Exists(t.Context(), protocol.AliveKey("")).Val() == 1 })
		}
		replicas := redis.NewFailoverClient(&redis.FailoverOptions{
			MasterName: "shop", SentinelAddrs: []string{set.Watcher.Addr()}, SentinelPassword: "watch",
			ReplicaOnly: true, ContextTimeoutEnabled: true, ConnMaxLifetime: 50 * time.Millisecond,
		})
		t.Cleanup(func() { _ = replicas.Close() })
		// until then connections lead to the master
		testenv.Eventually(t, "Sentinel to name the replica", func() bool {
			role, _ := replicas.Do(t.Context(), "role").Slice()
			return len(role) > 0 && role[0] == "slave"
		})
		var told atomic.Int32
		c := newCache(t, cache.Config{Redis: replicas, Logger: slog.New(askingHandler{slog.DiscardHandler, func(message string) {
			if strings.HasPrefix(message, "Redis is a replica") {
				told.Add(1)
			}
		}})})
		// after a second the server is asked again
		for begin := time.Now(); time.Since(begin) < 1200*time.Millisecond && !t.Failed(); {
			wantFetch(t, fmt.Sprintf("Fetch with worker: %v", alive), c, "k", w.db.read, nil, "old", cache.FromLoader)
		}
		if err := c.Healthy(); err == nil || !strings.Contains(err.Error(), "turn off ReplicaOnly") {
			t.Errorf("Healthy says %v", err)
		}
		if got := told.Load(); got != 1 {
			t.Errorf("the log says it %d times", got)
		}
	}
}
