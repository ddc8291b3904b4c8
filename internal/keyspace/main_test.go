package keyspace_test

import (
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/protocol"
	"github.com/unstale/unstale/redisurl"
)

func TestMain(m *testing.M) {
	keyspace.SetClientLog(nil)
	testenv.Main(m)
}

// patient is a Timeout that a busy machine does not reach.
const patient = 5 * time.Second

// open opens a Keyspace that closes with the test.
func open(t testing.TB, o keyspace.Options) *keyspace.Keyspace {
	t.Helper()
	if o.Timeout == 0 {
		o.Timeout = patient
	}
	k, err := keyspace.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := k.Close(); err != nil {
			t.Error(err)
		}
	})
	return k
}

// at reads a URL that is well.
func at(url string) *redis.UniversalOptions { return read(url, false) }

// withTLS is like at, with TLS for any scheme.
func withTLS(url string) *redis.UniversalOptions { return read(url, true) }

// trusting is at, with a TLS configuration of the caller's.
func trusting(url string, config *tls.Config) *redis.UniversalOptions {
	o := at(url)
	o.TLSConfig = config
	return o
}

func read(url string, forceTLS bool) *redis.UniversalOptions {
	o, err := redisurl.Parse(url, forceTLS)
	if err != nil {
		panic(err)
	}
	return o
}

// fill stores a value under each name, in slots wherever they are.
func fill(t testing.TB, c redis.UniversalClient, names ...string) {
	t.Helper()
	for len(names) > 0 {
		n := min(len(names), 5000)
		_, err := c.Pipelined(t.Context(), func(p redis.Pipeliner) error {
			for _, name := range names[:n] {
				p.Set(t.Context(), name, "value", 0)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		names = names[n:]
	}
}

// left returns those of names that exist.
func left(t testing.TB, c redis.UniversalClient, names ...string) []string {
	t.Helper()
	var left []string
	for len(names) > 0 {
		n := min(len(names), 5000)
		replies, err := c.Pipelined(t.Context(), func(p redis.Pipeliner) error {
			for _, name := range names[:n] {
				p.Exists(t.Context(), name)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range replies {
			if r.(*redis.IntCmd).Val() > 0 {
				left = append(left, names[i])
			}
		}
		names = names[n:]
	}
	return left
}

func wantLeft(t testing.TB, c redis.UniversalClient, names []string, want ...string) {
	t.Helper()
	if got := left(t, c, names...); strings.Join(got, "\x00") != strings.Join(want, "\x00") {
		t.Errorf("%d of %d names exist: %.20q, want %.20q", len(got), len(names), got, want)
	}
}

// leases returns the lease keys of keys that have one.
func leases(keys ...string) []string {
	var list []string
	for _, key := range keys {
		if lease, ok := protocol.LeaseKey(key); ok {
			list = append(list, lease)
		}
	}
	return list
}

// tombstones returns the tombstones of keys that have one.
func tombstones(keys ...string) []string {
	var list []string
	for _, key := range keys {
		if name, ok := protocol.HoldKey(key); ok {
			list = append(list, name)
		}
	}
	return list
}

func targets(keys ...string) []keyspace.Target {
	list := make([]keyspace.Target, len(keys))
	for i, key := range keys {
		list[i].Key = key
	}
	return list
}

// names are n names made of a format with one %d.
func names(n int, format string) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf(format, i)
	}
	return list
}

func mustUnlink(t testing.TB, k *keyspace.Keyspace, targets []keyspace.Target) {
	t.Helper()
	done, err := k.Unlinker.Unlink(t.Context(), targets)
	if err != nil || len(done.Failures) > 0 {
		t.Fatalf("Unlink: %v, failures %v", err, done.Failures)
	}
}

// wantOutage checks that err is an *Outage in one of states.
func wantOutage(t testing.TB, err error, states ...string) {
	t.Helper()
	var outage *keyspace.Outage
	if !errors.As(err, &outage) {
		t.Fatalf("got error %v, want an outage (%s)", err, strings.Join(states, " or "))
	}
	for _, state := range states {
		if outage.State == state {
			return
		}
	}
	t.Fatalf("got %v, want state %s", err, strings.Join(states, " or "))
}

func wantRefusal(t testing.TB, err error, key string) {
	t.Helper()
	var refusal *keyspace.Refusal
	if !errors.As(err, &refusal) || refusal.Key != key {
		t.Fatalf("got error %v, want a refusal of %q", err, key)
	}
}
