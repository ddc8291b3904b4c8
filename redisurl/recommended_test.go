package redisurl_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/cache"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/limit"
	"github.com/unstale/unstale/lock"
	"github.com/unstale/unstale/redisurl"
)

// clientAt returns a client with the recommended settings, with time enough for a slow machine.
func clientAt(t *testing.T, o *redis.UniversalOptions) redis.UniversalClient {
	t.Helper()
	slow := *o
	slow.DialTimeout, slow.ReadTimeout, slow.WriteTimeout, slow.PoolTimeout = patient, patient, patient, patient
	client := redis.NewUniversalClient(redisurl.Recommended(&slow))
	t.Cleanup(func() { _ = client.Close() })
	return client
}

const patient = 5 * time.Second

// The cache, limits and locks work with clients of every kind of URL, and connecting needs no
// permission.
func TestRecommended(t *testing.T) {
	t.Parallel()
	certificate := testenv.NewCertificate(t)
	cluster, single := testenv.OwnCluster(t, 3, false), testenv.OwnRedis(t)
	plain := redis.NewClient(&redis.Options{Addr: single.Addr()})
	defer plain.Close()
	if err := plain.Do(t.Context(), "acl", "setuser", "app", "on", ">secret", "~*", "&*", "+@all", "-client", "-hello").Err(); err != nil {
		t.Fatal(err)
	}
	withTLS := read("rediss://"+certificate.OwnTLSRedis(t), false)
	withTLS.TLSConfig = &tls.Config{RootCAs: certificate.Authorities}
	for name, o := range map[string]*redis.UniversalOptions{
		"single":   read("redis://app:secret@"+single.Addr()+"/3", false),
		"TLS":      withTLS,
		"sentinel": read(testenv.OwnSentinel(t).URL("", 2), false),
		"cluster":  read(cluster.URL(), false),
	} {
		client := clientAt(t, o)
		c, err := cache.New(cache.Config{Redis: client, Prefix: "shop:", Timeout: patient})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		defer c.Close()
		for _, from := range []cache.Source{cache.FromLoader, cache.FromRedis} {
			r, err := cache.FetchResult(t.Context(), c, "k", func(context.Context) (string, error) { return "v", nil }, nil)
			if err != nil || r.Value != "v" || r.Source != from {
				t.Errorf("%s: %+v, %v", name, r, err)
			}
		}
		limiter, err := limit.New(limit.Config{Redis: client, Prefix: "limit:", Max: 1, Window: time.Hour, WhenAway: limit.Refuse, Timeout: patient})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if d, err := limiter.Take(t.Context(), "a"); err != nil || !d.Allowed {
			t.Errorf("%s: %+v, %v", name, d, err)
		}
		locks, err := lock.New(lock.Config{Backend: lock.Redis{Client: client}})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := locks.Do(t.Context(), "a", func(context.Context, *lock.Held) error { return nil }); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := locks.Close(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if refused, err := plain.ACLLog(t.Context(), 10).Result(); err != nil || len(refused) > 0 {
		t.Errorf("Redis refused %+v, %v", refused, err)
	}
}

// Recommended keeps fields that are set, and does not change its argument.
func TestRecommendedKeeps(t *testing.T) {
	t.Parallel()
	mine := &redis.UniversalOptions{Addrs: []string{"h:1"}, ReadTimeout: time.Second, PoolSize: 3, MaxRetries: -1, DialerRetries: 2}
	o := redisurl.Recommended(mine)
	if o.ReadTimeout != time.Second || o.PoolSize != 3 || o.MaxRetries != -1 || o.DialerRetries != 2 || o.WriteTimeout != 200*time.Millisecond {
		t.Errorf("%+v", o)
	}
	if mine.Dialer != nil || mine.ContextTimeoutEnabled {
		t.Errorf("the caller's are %+v", mine)
	}
}

// While a server is unreachable, connections are tried after 200 ms, 400 ms and so on, and commands
// fail meanwhile with the reason. When it is back, they succeed, and the count begins again.
func TestReconnect(t *testing.T) {
	t.Parallel()
	server := testenv.OwnRedis(t)
	var mu sync.Mutex
	var dials []time.Time
	o := read("redis://"+server.Addr(), false)
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		mu.Lock()
		dials = append(dials, time.Now())
		mu.Unlock()
		return new(net.Dialer).DialContext(ctx, network, addr)
	}
	tried := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(dials)
	}
	client := clientAt(t, o)
	if err := client.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	for round := range 2 {
		if err := server.Kill(); err != nil {
			t.Fatal(err)
		}
		// a connection from before ends with another error, and is not used again
		testenv.Eventually(t, "a refusal", func() bool { return errors.Is(client.Ping(t.Context()).Err(), syscall.ECONNREFUSED) })
		before := tried()
		testenv.Eventually(t, "three dials", func() bool {
			err := client.Ping(t.Context()).Err()
			if !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("round %d: %v hides the reason", round, err)
			}
			return tried() >= before+3
		})
		mu.Lock()
		for i := before; i < len(dials); i++ {
			if least := time.Duration(i-before+1) * 200 * time.Millisecond; dials[i].Sub(dials[i-1]) < least {
				t.Errorf("round %d: dial %d came after %v, wanted %v at least", round, i-before+1, dials[i].Sub(dials[i-1]), least)
			}
		}
		mu.Unlock()
		if err := server.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		testenv.Eventually(t, "the server to be used again", func() bool { return client.Ping(t.Context()).Err() == nil })
	}
}

// Errors of options and of connections show no password.
func TestNoPassword(t *testing.T) {
	t.Parallel()
	server := testenv.OwnRedis(t)
	client := clientAt(t, read("redis://app:hush-hush@"+server.Addr(), false))
	if err := client.Ping(t.Context()).Err(); err == nil || strings.Contains(err.Error(), "hush") {
		t.Errorf("%v", err)
	}
}
