package keyspace_test

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/protocol"
)

// A sentinelSet is a master with a replica, and a Sentinel that watches them.
type sentinelSet struct {
	master, replica, watcher *servers.Redis
}

// url leads to database 2 of the master.
func (s *sentinelSet) url() string {
	return "redis+sentinel://" + s.watcher.Addr() + "/shop/2?sentinel_password=watch"
}

func startSentinel(t *testing.T) *sentinelSet {
	t.Helper()
	master, replica := testenv.OwnRedis(t, "--repl-diskless-sync-delay", "0"), testenv.OwnRedis(t)
	atMaster, atReplica := clientOf(t, master.URL()), clientOf(t, replica.URL())
	if err := atReplica.Do(t.Context(), "replicaof", "127.0.0.1", master.Port()).Err(); err != nil {
		t.Fatal(err)
	}
	// Sentinel asks for replicas at its start, and then every ten seconds.
	testenv.Eventually(t, "replication", func() bool {
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
	return &sentinelSet{master, replica, watcher}
}

// failOver makes the replica the master. The old master answers for ten seconds more, until Sentinel makes it a
// replica.
func (s *sentinelSet) failOver(t *testing.T) {
	t.Helper()
	admin := redis.NewSentinelClient(&redis.Options{Addr: s.watcher.Addr(), Password: "watch"})
	t.Cleanup(func() { _ = admin.Close() })
	testenv.Eventually(t, "failover", func() bool { return admin.Failover(t.Context(), "shop").Err() == nil })
	atReplica := clientOf(t, s.replica.URL())
	testenv.Eventually(t, "the new master", func() bool {
		return atReplica.Do(t.Context(), "role").Val().([]any)[0] == "master"
	})
	testenv.Eventually(t, "Sentinel's word for it", func() bool {
		addr := admin.GetMasterAddrByName(t.Context(), "shop").Val()
		return len(addr) == 2 && addr[1] == strconv.Itoa(s.replica.Port())
	})
}

// The master is found through Sentinel, and after a failover the new one.
func TestSentinel(t *testing.T) {
	t.Parallel()
	set := startSentinel(t)
	k := open(t, keyspace.Options{Redis: at(set.url()), Timeout: time.Second})
	at2 := clientOf(t, "redis://"+set.master.Addr()+"/2")
	fill(t, at2, "a", "b")
	fill(t, at2, leases("a", "b")...)
	mustUnlink(t, k, targets("a"))
	if _, err := k.Sweep(t.Context(), []string{"b*"}, nil); err != nil {
		t.Fatal(err)
	}
	wantLeft(t, at2, append([]string{"a", "b"}, leases("a", "b")...))
	hear := subscribe(t, at2, "cache:invalidate")
	if _, err := k.Publish(t.Context(), "cache:invalidate", protocol.FormatEvent, []string{"a"}, nil); err != nil {
		t.Fatal(err)
	}
	decode(t, hear())

	set.failOver(t)
	at2 = clientOf(t, "redis://"+set.replica.Addr()+"/2")
	fill(t, at2, "c")
	testenv.Eventually(t, "the switch", func() bool {
		_, err := k.Unlink(t.Context(), targets("c"))
		return err == nil && len(left(t, at2, "c")) == 0
	})
}

// A sweep that began at a server that is no longer a master begins again at its successor, although the old one goes on
// answering.
func TestSweepSentinelFailover(t *testing.T) {
	t.Parallel()
	set := startSentinel(t)
	k := open(t, keyspace.Options{Redis: at(set.url()), Timeout: time.Second, BeaconTTL: time.Hour, SweepShare: 1})
	k.WatchEveryPage()
	keys, staying := names(30_000, "sweep:%d"), names(1000, "stay:%d")
	at2 := clientOf(t, "redis://"+set.master.Addr()+"/2")
	fill(t, at2, append(keys, staying...)...)
	fill(t, at2, leases(keys...)...)
	if n, err := at2.Do(t.Context(), "wait", 1, 10_000).Int(); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	done := false
	watch := func(p keyspace.Progress) {
		if !done && p.Scanned > 10_000 {
			done = true
			set.failOver(t)
		}
	}
	again := 0
	testenv.Eventually(t, "a sweep", func() bool { // after a loss it is the caller's to repeat
		result, err := k.Sweep(t.Context(), []string{"sweep:*"}, watch)
		again += result.Again
		if err != nil {
			again++
		}
		return err == nil
	})
	if again == 0 {
		t.Error("the sweep did not begin again: the test has lost its point")
	}
	at2 = clientOf(t, "redis://"+set.replica.Addr()+"/2")
	wantLeft(t, at2, append(keys, leases(keys...)...))
	wantLeft(t, at2, staying, staying...)
}
