package cache_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/cache"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/protocol"
)

// twoServers is two servers. One of them is the master. Clients keep their connections when the
// master changes.
type twoServers struct {
	testing.TB
	clients [2]*redis.Client
	master  atomic.Int32
	dials   atomic.Int32
}

func newServers(t testing.TB) *twoServers {
	t.Helper()
	return serversAt(t, testenv.OwnRedis(t).URL(), testenv.OwnRedis(t).URL())
}

func serversAt(t testing.TB, urls ...string) *twoServers {
	t.Helper()
	s := &twoServers{TB: t}
	for i := range s.clients {
		s.clients[i] = testenv.Client(t, urls[i])
	}
	return s
}

// client returns one whose new connections lead to the master.
func (s *twoServers) client() *redis.Client {
	client := redis.NewClient(&redis.Options{
		ContextTimeoutEnabled: true, PoolSize: 8,
		Dialer: func(ctx context.Context, network, _ string) (net.Conn, error) {
			s.dials.Add(1)
			return new(net.Dialer).DialContext(ctx, network, s.clients[s.master.Load()].Options().Addr)
		},
	})
	s.Cleanup(func() { _ = client.Close() })
	return client
}

const (
	works = -time.Minute // a worker writes all the time
	gone  = 10 * time.Second
)

// wrote makes that a worker of outbox "shop" wrote to a server so long ago.
func (s *twoServers) wrote(server int, ago, lease time.Duration) {
	s.Helper()
	s.wroteAs("shop", server, ago, lease)
}

// wroteAs is wrote for a worker of another outbox.
func (s *twoServers) wroteAs(source string, server int, ago, lease time.Duration) {
	s.Helper()
	client := s.clients[server]
	at := must1(s, client.Time(s.Context()).Result)
	text := protocol.Alive{Time: at.Add(-ago).UnixMicro(), Lease: lease.Milliseconds(), Map: "m"}.String()
	testenv.Must(s, client.HSet(s.Context(), protocol.AliveKey(""), source, text).Err())
}

func must1[R any](t testing.TB, f func() (R, error)) R {
	t.Helper()
	r, err := f()
	testenv.Must(t, err)
	return r
}

// Values from a server that workers have left are not used, over any connection and with any
// command. The connections to it are closed.
func TestWorkersLeave(t *testing.T) {
	t.Parallel()
	load := func(value string) cache.Loader[string] {
		return func(context.Context) (string, error) { return value, nil }
	}
	tagged, sliding := cache.Moderate.Tagged("t"), cache.MustPolicy(cache.Options{TTL: time.Hour, Sliding: true, SlidingMax: 2 * time.Hour})
	for name, read := range map[string]func(c *cache.Cache, value string) (string, error){
		"Fetch": func(c *cache.Cache, v string) (string, error) { return cache.Fetch(t.Context(), c, "k", load(v), nil) },
		"Fetch tagged": func(c *cache.Cache, v string) (string, error) {
			return cache.Fetch(t.Context(), c, "k", load(v), tagged)
		},
		"Fetch sliding": func(c *cache.Cache, v string) (string, error) {
			return cache.Fetch(t.Context(), c, "k", load(v), sliding)
		},
		"Get": func(c *cache.Cache, v string) (string, error) {
			got, err := cache.Get[string](t.Context(), c, "k")
			if err != nil { // nothing is known by that key
				return cache.Fetch(t.Context(), c, "k", load(v), nil)
			}
			return got, nil
		},
		"FetchMany": func(c *cache.Cache, v string) (string, error) {
			got, err := cache.FetchMany(t.Context(), c, []string{"k", "l"}, func(context.Context, []string) (map[string]string, error) {
				return map[string]string{"k": v, "l": v}, nil
			}, nil)
			return got["k"], err
		},
		"Delete": func(c *cache.Cache, v string) (string, error) {
			if err := c.Delete(t.Context(), "k"); (err == nil) != (v == "old") {
				return "", fmt.Errorf("delete: %w", err)
			}
			return v, nil
		},
	} {
		for _, vanished := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", vanished ", vanished), func(t *testing.T) {
				t.Parallel()
				s := newServers(t)
				s.wrote(0, works, time.Minute)
				c := newCache(t, cache.Config{Redis: s.client(), Failures: 1})
				for range 2 { // the second one finds what the first one has stored
					if got, err := read(c, "old"); err != nil || got != "old" {
						t.Fatalf("before: got %q, %v", got, err)
					}
				}
				s.wrote(0, gone, time.Minute)
				if vanished {
					testenv.Must(t, s.clients[0].Del(t.Context(), protocol.AliveKey("")).Err())
				}
				s.wrote(1, works, time.Minute)
				s.master.Store(1)
				if got, err := read(c, "new"); err != nil || got != "new" {
					t.Errorf("after: got %q, %v", got, err)
				}
				if n := c.Statistics().Strays; n == 0 {
					t.Error("no answer is counted")
				}
				testenv.Must(t, c.Healthy())
				testenv.Eventually(t, "the pool to lead to the new master", func() bool {
					before := c.Statistics()
					if name == "Delete" {
						return c.Delete(t.Context(), "k") == nil
					}
					if got, err := read(c, "new"); err != nil || got != "new" {
						t.Fatalf("later: got %q, %v", got, err)
					}
					after := c.Statistics()
					return after.Strays == before.Strays && after.L2Hits > before.L2Hits
				})
			})
		}
	}
}

// Workers have moved, have written and have ended: no server has a young field, but the times
// differ. Values from a connection to the first server are not used again.
func TestWorkersMoveAndEnd(t *testing.T) {
	t.Parallel()
	s := newServers(t)
	s.wrote(0, works, time.Minute)
	c := newCache(t, cache.Config{Redis: s.client(), Failures: 1})
	fetch := func(row string) (got string, hit bool) {
		hit = true
		got = must1(t, func() (string, error) {
			return cache.Fetch(t.Context(), c, "k", func(context.Context) (string, error) { hit = false; return row, nil }, nil)
		})
		return got, hit
	}
	if got, _ := fetch("old"); got != "old" {
		t.Fatalf("got %q", got)
	}
	s.wrote(0, 2*gone, time.Minute)
	s.wrote(1, gone, time.Minute)
	s.master.Store(1)
	testenv.Eventually(t, "a hit on the other server", func() bool {
		got, hit := fetch("new")
		if got != "new" {
			t.Fatalf("got %q from the server that workers have left", got)
		}
		return hit
	})
}

// A splitConn writes a pipeline with a read and the question where workers write in two parts.
type splitConn struct {
	net.Conn
	armed   *atomic.Bool
	between func()
}

func (c splitConn) Write(pipeline []byte) (int, error) {
	get, question := strings.Index(string(pipeline), "$3\r\nget"), strings.Index(string(pipeline), "$4\r\ntime")
	if get < 0 || question < 0 || !c.armed.Swap(false) {
		return c.Conn.Write(pipeline)
	}
	second := max(get, question) - len("*2\r\n")
	if _, err := c.Conn.Write(pipeline[:second]); err != nil {
		return 0, err
	}
	c.between()
	n, err := c.Conn.Write(pipeline[second:])
	return second + n, err
}

// A master that workers have left becomes a replica of the new one within a pipeline, and so has
// their field: its value from before is not used.
func TestReplicaWithinAPipeline(t *testing.T) {
	t.Parallel()
	s := serversAt(t, testenv.OwnRedis(t, "--repl-diskless-sync-delay", "0").URL(), testenv.OwnRedis(t, "--repl-diskless-sync-delay", "0").URL())
	old, fresh := s.clients[0], s.clients[1]
	var armed atomic.Bool
	between := func() {
		testenv.Eventually(t, "the first part", func() bool {
			commands := must1(t, old.Info(t.Context(), "commandstats").Result)
			return strings.Contains(commands, "cmdstat_get:") || strings.Contains(commands, "cmdstat_hgetall:") || strings.Contains(commands, "cmdstat_hget:")
		})
		host, port, err := net.SplitHostPort(fresh.Options().Addr)
		testenv.Must(t, err)
		testenv.Must(t, old.Do(t.Context(), "replicaof", host, port).Err())
		testenv.Eventually(t, "the replication", func() bool { return old.Exists(t.Context(), "marker").Val() == 1 })
	}
	client := s.client()
	dial := client.Options().Dialer
	client.Options().Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		return splitConn{conn, &armed, between}, err
	}
	s.wrote(0, works, time.Minute)
	c := newCache(t, cache.Config{Redis: client, Timeout: 5 * time.Second})
	fetch := func(row string) string {
		return must1(t, func() (string, error) {
			return cache.Fetch(t.Context(), c, "k", func(context.Context) (string, error) { return row, nil }, nil)
		})
	}
	if fetch("old") != "old" {
		t.Fatal("it is not loaded")
	}
	s.wrote(0, gone, time.Minute)
	s.wrote(1, works, time.Minute)
	testenv.Must(t, fresh.Set(t.Context(), "marker", 1, 0).Err())
	s.master.Store(1)
	testenv.Must(t, old.ConfigResetStat(t.Context()).Err())
	armed.Store(true)
	if got := fetch("new"); got != "new" || armed.Load() {
		t.Errorf("got %q; the pipeline was split: %v", got, !armed.Load())
	}
}

// If no worker runs, values in Redis are used, and a new connection looks for workers at most once
// per second.
func TestNoWorkerRuns(t *testing.T) {
	t.Parallel()
	s := newServers(t)
	s.wrote(0, works, time.Minute)
	c := newCache(t, cache.Config{Redis: s.client()})
	db := &database{value: "old"}
	wantFetched(t, "while a worker runs", c, "k", db.read, "old")
	s.wrote(0, gone, time.Minute)
	began, before := time.Now(), s.dials.Load()
	for range 100 {
		wantFetch(t, "without a worker", c, "k", db.read, nil, "old", cache.FromRedis)
	}
	if n, most := s.dials.Load()-before, 1+int32(time.Since(began)/time.Second); n < 1 || n > most {
		t.Errorf("%d connections, wanted 1 to %d", n, most)
	}
	testenv.Must(t, s.clients[0].Del(t.Context(), protocol.AliveKey("")).Err())
	wantFetch(t, "without a trace of one", c, "k", db.read, nil, "old", cache.FromRedis)
	if n := c.Statistics().Strays; n > 0 {
		t.Errorf("%d answers count as those of a server that workers have left", n)
	}
	testenv.Must(t, c.Healthy())
}

// The lease of the map bounds the lease of a reader, and Healthy reports it.
func TestLeaseOfTheMap(t *testing.T) {
	t.Parallel()
	s := newServers(t)
	s.wrote(0, works, 2*time.Second)
	c := newCache(t, cache.Config{Redis: s.client(), Lease: 20 * time.Second})
	db := &database{value: "old"}
	wantFetched(t, "the first one", c, "a", db.read, "old")
	if err := c.Healthy(); err == nil || !strings.Contains(err.Error(), "20s") || !strings.Contains(err.Error(), "2s") {
		t.Errorf("healthy: %v", err)
	}
	p := db.paused()
	answers := fetchBeside(t, c, "b", p.load, nil)
	<-p.read
	lease, _ := protocol.LeaseKey("b")
	if life := must1(t, s.clients[0].PTTL(t.Context(), lease).Result); life <= 0 || life > 2*time.Second {
		t.Errorf("a lease of %v, wanted the map's", life)
	}
	if c.Statistics().ShortLeases == 0 {
		t.Error("no short lease is counted")
	}
	close(p.release)
	wantAnswer(t, "the load", answers, "old")
	s.wrote(0, works, 20*time.Second)
	wantFetched(t, "later", c, "a", db.read, "old")
	testenv.Must(t, c.Healthy())
}

// A reader that learns of a shorter lease by the answer to its request takes a shorter one: second
// sweeps do not wait for the longer one.
func TestLeaseIsTakenAgainIfTheMapsIsShorter(t *testing.T) {
	t.Parallel()
	s := newServers(t)
	c := newCache(t, cache.Config{Redis: s.client()})
	for _, lowered := range []time.Duration{5 * time.Second, 2 * time.Second} { // from unknown, from 5 s
		s.wrote(0, works, lowered)
		key := lowered.String()
		l, err := c.Lease(t.Context(), key, nil)
		testenv.Must(t, err)
		lease, _ := protocol.LeaseKey(key)
		if life := must1(t, s.clients[0].PTTL(t.Context(), lease).Result); life <= 0 || life > lowered {
			t.Errorf("a lease of %v, wanted the map's, %v", life, lowered)
		}
		testenv.Must(t, cache.Set(t.Context(), l, "new"))
		wantFetch(t, "what was set", c, key, func(context.Context) (string, error) { return "loaded", nil }, nil, "new", cache.FromRedis)
	}
}

// A reader whose account may not look for workers reads as before, and logs it once.
func TestAliveIsDenied(t *testing.T) {
	t.Parallel()
	s := newServers(t)
	s.wrote(0, works, time.Second)
	testenv.Must(t, s.clients[0].Do(t.Context(), "acl", "setuser", "reader", "on", ">secret", "~*", "&*", "+@all", "-hget", "-hgetall").Err())
	client := redis.NewClient(&redis.Options{Addr: s.clients[0].Options().Addr, Username: "reader", Password: "secret", ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = client.Close() })
	logged := &lines{}
	c := newCache(t, cache.Config{Redis: client, Logger: logged.logger()})
	db := &database{value: "old"}
	wantFetched(t, "the first one", c, "k", db.read, "old")
	for range 3 {
		wantFetch(t, "a hit", c, "k", db.read, nil, "old", cache.FromRedis)
	}
	if n := len(logged.with("+hgetall")); n != 1 {
		t.Errorf("logged %d times", n)
	}
	testenv.Must(t, c.Healthy())
}
