package testenv

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/servers"
)

// A Sentinel is a master with a replica for one test, and a Sentinel that watches them under the
// name shop.
type Sentinel struct {
	Master, Replica, Watcher *servers.Redis
}

// sentinelPassword is the password of the Sentinel.
const sentinelPassword = "watch"

// URL returns the URL of a database of the master, for package keyspace. user is "" or ends with
// "@".
func (s *Sentinel) URL(user string, db int) string {
	return fmt.Sprintf("redis+sentinel://%s%s/shop/%d?sentinel_password=%s", user, s.Watcher.Addr(), db, sentinelPassword)
}

// OwnSentinel starts a Sentinel, and returns when the replica follows. args are further options of
// master and replica.
func OwnSentinel(t testing.TB, args ...string) *Sentinel {
	t.Helper()
	args = append([]string{"--repl-diskless-sync-delay", "0"}, args...)
	s := &Sentinel{Master: OwnRedis(t, args...), Replica: OwnRedis(t, args...)}
	atMaster, atReplica := clientOf(t, s.Master.Addr()), clientOf(t, s.Replica.Addr())
	if err := atReplica.Do(t.Context(), "replicaof", "127.0.0.1", s.Master.Port()).Err(); err != nil {
		t.Fatal(err)
	}
	// Sentinel looks for replicas at its start, and then every ten seconds.
	Eventually(t, "replication", func() bool {
		return onlineReplicas(t, atMaster) == 1 && atReplica.InfoMap(t.Context(), "replication").Val()["Replication"]["master_link_status"] == "up"
	})
	var err error
	s.Watcher, err = servers.StartRedis(t.Context(), servers.RedisOptions{
		Config: fmt.Sprintf("sentinel monitor shop 127.0.0.1 %d 1\nsentinel down-after-milliseconds shop 1000\nrequirepass %s\n", s.Master.Port(), sentinelPassword),
		Args:   []string{"--sentinel"},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Watcher.Close() })
	run.use(s.Watcher.Program().Name+" Sentinel", servers.ShortVersion(s.Watcher.Version()), fromLocal)
	return s
}

// FailOver promotes the replica. The old master answers for ten seconds more, until Sentinel turns
// it into a replica.
func (s *Sentinel) FailOver(t testing.TB) {
	t.Helper()
	admin := redis.NewSentinelClient(&redis.Options{Addr: s.Watcher.Addr(), Password: sentinelPassword})
	t.Cleanup(func() { _ = admin.Close() })
	Eventually(t, "failover", func() bool { return admin.Failover(t.Context(), "shop").Err() == nil })
	atReplica := clientOf(t, s.Replica.Addr())
	Eventually(t, "the new master", func() bool {
		role, ok := atReplica.Do(t.Context(), "role").Val().([]any)
		return ok && role[0] == "master"
	})
	Eventually(t, "Sentinel's word for it", func() bool {
		addr := admin.GetMasterAddrByName(t.Context(), "shop").Val()
		return len(addr) == 2 && addr[1] == strconv.Itoa(s.Replica.Port())
	})
}

// onlineReplicas returns the number of replicas that a master reports as online. A master does so
// only after the replica has acknowledged, slightly later than the replica itself.
func onlineReplicas(t testing.TB, master *redis.Client) int {
	return strings.Count(master.Info(t.Context(), "replication").Val(), ",state=online,")
}

func clientOf(t testing.TB, addr string) *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { _ = c.Close() })
	return c
}
