package keyspace_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/invalidation"
	"github.com/unstale/unstale/keyspace"
)

// The master is found through Sentinel, and after a failover the new one.
func TestSentinel(t *testing.T) {
	t.Parallel()
	master, replica := testenv.OwnRedis(t, "--repl-diskless-sync-delay", "0"), testenv.OwnRedis(t)
	atMaster, atReplica := clientOf(t, master.URL()), clientOf(t, replica.URL())
	if err := atReplica.Do(t.Context(), "replicaof", "127.0.0.1", master.Port()).Err(); err != nil {
		t.Fatal(err)
	}
	// Sentinel asks for replicas at its start, and then every ten seconds.
	eventually(t, "replication", func() bool {
		return atMaster.InfoMap(t.Context(), "replication").Val()["Replication"]["connected_slaves"] == "1" &&
			atReplica.InfoMap(t.Context(), "replication").Val()["Replication"]["master_link_status"] == "up"
	})
	watcher, err := servers.StartRedis(t.Context(), servers.RedisOptions{
		Config: fmt.Sprintf("sentinel monitor shop 127.0.0.1 %d 1\nsentinel down-after-milliseconds shop 1000\n"+
			"requirepass watch\n", master.Port()),
		Args: []string{"--sentinel"},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = watcher.Close() })
	k := open(t, keyspace.Options{URL: "redis+sentinel://" + watcher.Addr() + "/shop/2?sentinel_password=watch", Timeout: time.Second})
	at2 := clientOf(t, "redis://"+master.Addr()+"/2")
	fill(t, at2, "a", "b")
	fill(t, at2, leases("a", "b")...)
	mustUnlink(t, k, targets("a"))
	if _, err := k.Sweep(t.Context(), []string{"b*"}); err != nil {
		t.Fatal(err)
	}
	wantLeft(t, at2, append([]string{"a", "b"}, leases("a", "b")...))
	hear := subscribe(t, at2, "cache:invalidate")
	if _, err := k.Publish(t.Context(), "cache:invalidate", invalidation.FormatEvent, []string{"a"}, nil); err != nil {
		t.Fatal(err)
	}
	decode(t, hear())

	admin := redis.NewSentinelClient(&redis.Options{Addr: watcher.Addr(), Password: "watch"})
	t.Cleanup(func() { _ = admin.Close() })
	eventually(t, "failover", func() bool { return admin.Failover(t.Context(), "shop").Err() == nil })
	eventually(t, "the new master", func() bool {
		return atReplica.Do(t.Context(), "role").Val().([]any)[0] == "master"
	})
	// The old master answers for ten seconds more, until Sentinel makes it a
	// replica. The client must not wait for that.
	at2 = clientOf(t, "redis://"+replica.Addr()+"/2")
	fill(t, at2, "c")
	eventually(t, "the switch", func() bool {
		_, err := k.Unlink(t.Context(), targets("c"))
		return err == nil && len(left(t, at2, "c")) == 0
	})
}
