package redisclient_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/redisclient"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/redisurl"
	"github.com/unstale/unstale/worker"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func clientAt(t *testing.T, url string) *redis.Client {
	t.Helper()
	o, err := redis.ParseURL(url)
	testenv.Must(t, err)
	client := redis.NewClient(o)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// stateServer returns one that is fit.
func stateServer(t *testing.T) string {
	t.Helper()
	return testenv.OwnRedis(t, "--appendonly", "yes", "--dir", t.TempDir()).Addr()
}

// wantFaults wants all of them, one a line, and no others.
func wantFaults(t *testing.T, client redis.UniversalClient, want ...string) {
	t.Helper()
	var got []string
	if err := redisclient.CheckState(t.Context(), client); err != nil {
		got = strings.Split(err.Error(), "\n")
	}
	if len(got) != len(want) {
		t.Fatalf("%q, wanted %q", got, want)
	}
	for i := range want {
		if !strings.Contains(got[i], want[i]) {
			t.Errorf("%q, wanted %q", got[i], want[i])
		}
	}
}

// An instance that evicts or forgets is no place for state, and one that does neither is.
func TestCheckState(t *testing.T) {
	t.Parallel()
	wantFaults(t, clientAt(t, testenv.OwnRedis(t, "--maxmemory-policy", "volatile-ttl").URL()),
		"may evict what must stay (maxmemory-policy volatile-ttl): use an instance with noeviction", "forgets what must stay when it restarts (aof_enabled 0): set appendonly yes")
	client := clientAt(t, "redis://"+stateServer(t))
	wantFaults(t, client)
	for i := range 15 { // more than one request sees
		keys := make([]any, 0, 2000)
		for j := range 1000 {
			keys = append(keys, fmt.Sprintf("lock:{%d-%d}", i, j), "x")
		}
		testenv.Must(t, client.MSet(t.Context(), keys...).Err())
	}
	wantFaults(t, client)
}

// A worker's cache is told by its beacons in the same database, and in another one while a worker
// listens.
func TestCheckStateOfACache(t *testing.T) {
	t.Parallel()
	address := stateServer(t)
	o, err := redisurl.Parse("redis://"+address+"/3", false)
	testenv.Must(t, err)
	k, err := keyspace.Open(keyspace.Options{Redis: o, BeaconTTL: time.Hour, Timeout: 5 * time.Second})
	testenv.Must(t, err)
	defer func() { testenv.Must(t, k.Close()) }()
	_, err = k.Unlinker.Unlink(t.Context(), []keyspace.Target{{Key: "shop:product:1"}})
	testenv.Must(t, err)
	same, other := clientAt(t, "redis://"+address+"/3"), clientAt(t, "redis://"+address+"/4")
	wantFaults(t, same, address+" is the cache's (a worker has left unstale:beacon:")
	wantFaults(t, other)

	ctx, cancel := context.WithCancel(t.Context())
	subscribed, ended := make(chan error, 10), make(chan struct{})
	go func() {
		defer close(ended)
		k.Subscriber.Listen(ctx, worker.Config{}.WithDefaults().WakeChannel, keyspace.Listener{Heard: func() {}, Subscribed: func(err error) { subscribed <- err }})
	}()
	for <-subscribed != nil { // an attempt that failed is followed by another
	}
	wantFaults(t, other, address+" is the cache's (a worker listens to cache:outbox:wake): use an instance of its own")
	cancel()
	<-ended
}

// The rights that are named suffice, and each of them is needed. Of what cannot be asked nothing is
// known.
func TestCheckStateNeeds(t *testing.T) {
	t.Parallel()
	address := stateServer(t)
	admin := clientAt(t, "redis://"+address)
	rights := strings.Fields(redisclient.StateRights)
	for _, without := range append(rights, "") {
		rules := []any{"acl", "setuser", "app", "reset", "on", ">change-me", "~lock:*"}
		for _, right := range rights {
			if right != without {
				rules = append(rules, right)
			}
		}
		testenv.Must(t, admin.Do(t.Context(), rules...).Err())
		client := clientAt(t, "redis://app:change-me@"+address)
		if without == "" {
			wantFaults(t, client)
		} else {
			wantFaults(t, client, "is not known (the account needs "+redisclient.StateRights+"): NOPERM")
		}
	}
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": address}})
	defer func() { _ = ring.Close() }()
	wantFaults(t, ring, "a *redis.Ring cannot be asked")
}
