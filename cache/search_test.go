package cache_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/cache"
	"github.com/unstale/unstale/internal/clock"
	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/protocol"
)

// leaves moves the workers to server 1, and fails if a reader uses an answer of server 0
// afterwards.
func (s *twoServers) leaves(c *cache.Cache, db *database) {
	s.Helper()
	s.wrote(0, gone, time.Minute)
	db.set("new")
	s.master.Store(1)
	wantFetched(s, "after the switch-over", c, "k", db.read, "new")
	if n := c.Statistics().Strays; n == 0 {
		s.Error("no answer is counted")
	}
}

// keep has connections of a client to the master in use until the returned function is called.
func (s *twoServers) keep(client *redis.Client) (release func()) {
	s.Helper()
	const many = 4
	at := s.clients[s.master.Load()]
	var blocked sync.WaitGroup
	for range many {
		blocked.Go(func() {
			_, _ = client.Pipelined(s.Context(), func(p redis.Pipeliner) error { return p.BLPop(s.Context(), 0, "released").Err() })
		})
	}
	testenv.Eventually(s, "connections", func() bool {
		return at.InfoMap(s.Context(), "clients").Val()["Clients"]["blocked_clients"] == strconv.Itoa(many)
	})
	return func() {
		testenv.Must(s, at.RPush(s.Context(), "released", 1, 2, 3, 4).Err())
		blocked.Wait()
	}
}

// A reader that has no sources configured follows workers whose outbox gets another ID.
func TestSourceIsReplaced(t *testing.T) {
	t.Parallel()
	s := newServers(t)
	s.wrote(0, works, time.Minute)
	c := newCache(t, cache.Config{Redis: s.client()})
	db := &database{value: "old"}
	for range 2 {
		wantFetched(t, "before", c, "k", db.read, "old")
	}
	testenv.Must(t, s.clients[0].Del(t.Context(), protocol.AliveKey("")).Err())
	s.wroteAs("shop2", 0, works, time.Minute)
	for range 2 {
		wantFetch(t, "replaced", c, "k", db.read, nil, "old", cache.FromRedis)
	}
	s.wroteAs("shop2", 0, gone, time.Minute)
	s.wroteAs("shop2", 1, works, time.Minute)
	s.leaves(c, db)
}

// A reader that starts while no worker runs notices that workers start at another server.
func TestWorkersStartElsewhere(t *testing.T) {
	t.Parallel()
	s := newServers(t)
	c := newCache(t, cache.Config{Redis: s.client()})
	db := &database{value: "old"}
	for range 2 {
		wantFetched(t, "before", c, "k", db.read, "old")
	}
	s.wrote(1, works, time.Minute)
	db.set("new")
	s.master.Store(1)
	testenv.Eventually(t, "the new master", func() bool {
		got, err := cache.Fetch(t.Context(), c, "k", db.read, nil)
		testenv.Must(t, err)
		return got == "new"
	})
	if n := c.Statistics().Strays; n == 0 {
		t.Error("no answer is counted")
	}
}

// The age of a field is by the clock of the server that answered. Other servers' clocks do not
// count.
func TestClocksDiffer(t *testing.T) {
	t.Parallel()
	library, err := clock.Library(t.TempDir())
	testenv.Must(t, err)
	for _, offset := range []time.Duration{-time.Minute, time.Minute} {
		t.Run(offset.String(), func(t *testing.T) {
			t.Parallel()
			file, err := clock.NewFile(filepath.Join(t.TempDir(), "offset"))
			testenv.Must(t, err)
			t.Cleanup(func() { testenv.Must(t, file.Close()) })
			file.Set(offset)
			skewed, err := servers.StartRedis(t.Context(), servers.RedisOptions{Env: []string{library, file.Env()}})
			testenv.Must(t, err)
			t.Cleanup(func() { testenv.Must(t, skewed.Close()) })
			s := serversAt(t, testenv.OwnRedis(t).URL(), skewed.URL())
			s.wrote(0, 0, time.Minute)
			client := s.client()
			client.Options().ReadTimeout = -1
			c := newCache(t, cache.Config{Redis: client, Memory: cache.Memory{Sources: []string{"shop"}}})
			db := &database{value: "old"}
			wantFetched(t, "before", c, "k", db.read, "old")
			release := s.keep(client)
			wantFetched(t, "before", c, "k", db.read, "old")
			s.wrote(0, protocol.AliveLife*time.Microsecond+time.Second, time.Minute)
			s.wrote(1, 0, time.Minute)
			db.set("new")
			s.master.Store(1)
			wantFetched(t, "after the switch-over", c, "k", db.read, "new")
			testenv.Eventually(t, "hits at the new master", func() bool {
				s.wrote(1, 0, time.Minute)
				got, err := cache.FetchResult(t.Context(), c, "k", db.read, nil)
				testenv.Must(t, err)
				if got.Value != "new" {
					t.Fatalf("got %q from %v", got.Value, got.Source)
				}
				return got.Source == cache.FromRedis
			})
			release() // connections to the old master are back in the pool
			for range 4 {
				wantFetched(t, "over an old connection", c, "k", db.read, "new")
			}
		})
	}
}

// A master that refuses writes is not a replica: its hits are used.
func TestMasterRefusesWrites(t *testing.T) {
	t.Parallel()
	for name, refuse := range map[string]func(t *testing.T, client *redis.Client, dir string){
		"NOREPLICAS": func(t *testing.T, client *redis.Client, _ string) {
			testenv.Must(t, client.ConfigSet(t.Context(), "min-replicas-to-write", "1").Err())
		},
		"MISCONF": func(t *testing.T, client *redis.Client, dir string) {
			testenv.Must(t, os.RemoveAll(dir))
			testenv.Must(t, client.BgSave(t.Context()).Err())
			testenv.Eventually(t, "a failed snapshot", func() bool {
				return client.InfoMap(t.Context(), "persistence").Val()["Persistence"]["rdb_last_bgsave_status"] == "err"
			})
		},
	} {
		for _, alive := range []bool{true, false} {
			t.Run(fmt.Sprint(name, ", with a worker ", alive), func(t *testing.T) {
				t.Parallel()
				dir := filepath.Join(t.TempDir(), "data")
				testenv.Must(t, os.Mkdir(dir, 0o700))
				r := testenv.OwnRedis(t, "--dir", dir, "--save", "3600 1000000", "--stop-writes-on-bgsave-error", "yes")
				s := serversAt(t, r.URL(), r.URL())
				if alive {
					s.wrote(0, works, time.Minute)
				}
				db := &database{value: "old"}
				wantFetched(t, "before", newCache(t, cache.Config{Redis: s.client()}), "k", db.read, "old")
				refuse(t, s.clients[0], dir)
				if err := s.clients[0].Set(t.Context(), "x", "y", 0).Err(); !redis.HasErrorPrefix(err, name) {
					t.Fatalf("a write: %v", err)
				}
				// its first request takes a write probe along
				c := newCache(t, cache.Config{Redis: s.client()})
				for range 5 {
					wantFetch(t, "a hit", c, "k", db.read, nil, "old", cache.FromRedis)
				}
				testenv.Must(t, c.Healthy())
			})
		}
	}
}

// A conn claims to lead to the address that remote returns. A failover client closes those to an
// old master.
type conn struct {
	net.Conn
	remote func() net.Addr
}

func (c conn) RemoteAddr() net.Addr { return c.remote() }

// After a switch-over by Sentinel, no answer of the old master is used, even if connections
// survive.
func TestSentinelSwitchesOver(t *testing.T) {
	t.Parallel()
	set := testenv.OwnSentinel(t)
	s := serversAt(t, set.Master.URL(), set.Replica.URL())
	s.wrote(0, works, time.Minute)
	client := redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName: "shop", SentinelAddrs: []string{set.Watcher.Addr()}, SentinelPassword: "watch", ContextTimeoutEnabled: true,
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := new(net.Dialer).DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return conn{c, func() net.Addr { // the master's at all times
				to := set.Master.Addr()
				if s.master.Load() == 1 {
					to = set.Replica.Addr()
				}
				a, _ := net.ResolveTCPAddr("tcp", to)
				return a
			}}, nil
		},
	})
	t.Cleanup(func() { _ = client.Close() })
	c := newCache(t, cache.Config{Redis: client})
	db := &database{value: "old"}
	for range 2 {
		wantFetched(t, "before", c, "k", db.read, "old")
	}
	testenv.Eventually(t, "replication", func() bool { return s.clients[1].Exists(t.Context(), protocol.AliveKey(""), "k").Val() == 2 })
	s.master.Store(1)
	set.FailOver(t)
	// In this order: a demoted master has what it replicates in the order of the writes.
	testenv.Must(t, s.clients[1].Unlink(t.Context(), "k").Err())
	s.wrote(1, works, time.Minute)
	s.leaves(c, db)
	testenv.Eventually(t, "hits at the new master", func() bool {
		got, err := cache.FetchResult(t.Context(), c, "k", db.read, nil)
		testenv.Must(t, err)
		if got.Value != "new" {
			t.Fatalf("got %q from %v", got.Value, got.Source)
		}
		return got.Source == cache.FromRedis
	})
	testenv.Must(t, c.Healthy())
}

// A subscription to a server that workers have left ends, and memory opens again with one to the
// new server.
func TestSubscriptionIsMoved(t *testing.T) {
	t.Parallel()
	s := newServers(t)
	s.wrote(0, works, time.Minute)
	channel := "c:" + t.Name()
	old, at := worldAt(t, "redis://"+s.clients[0].Options().Addr), worldAt(t, "redis://"+s.clients[1].Options().Addr)
	memory := memoryOf(channel)
	memory.Sources = []string{"s"}
	s.wroteAs("s", 0, works, time.Minute)
	logged := &lines{}
	c := newCache(t, cache.Config{Redis: s.client(), Memory: memory, Logger: logged.logger()})
	old.beat(channel, "e") // continues, as if the old master still had a publisher
	open(t, c)
	wantFetched(t, "before", c, "k", old.db.read, "old")
	at.beat(channel, "f")
	s.wroteAs("s", 0, gone, time.Minute)
	s.wroteAs("s", 1, works, time.Minute)
	s.master.Store(1)
	other := &database{value: "new"}
	wantFetched(t, "another key, which asks Redis", c, "l", other.read, "new")
	testenv.Eventually(t, "the subscription to end", func() bool { return len(logged.with("workers have left")) == 2 })
	open(t, c)
	testenv.Eventually(t, "a subscription at the new server", func() bool {
		return s.clients[1].PubSubNumSub(t.Context(), channel).Val()[channel] == 1
	})
	if n := s.clients[0].PubSubNumSub(t.Context(), channel).Val()[channel]; n != 0 {
		t.Errorf("%d subscriptions at the old server", n)
	}
	wantFetched(t, "what memory held", c, "k", other.read, "new")
}
