package lock_test

import (
	"crypto/tls"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/lock"
	"github.com/unstale/unstale/lock/internal/locktest"
)

// Redis is used over TLS if its client has a TLS configuration, and only with a certificate of a
// known authority.
func TestRedisTLS(t *testing.T) {
	t.Parallel()
	certificate := testenv.NewCertificate(t)
	addr := certificate.OwnTLSRedis(t)
	options, err := redis.ParseURL("rediss://" + addr)
	must(t, err)
	options.TLSConfig.RootCAs = certificate.Authorities
	secured := func(o *redis.Options) { o.TLSConfig = options.TLSConfig }
	w := worldAt(t, addr, secured)
	held := w.Acquire(w.Locker(lock.Config{}), "a")
	got := make(chan *lock.Held, 1)
	waiter := w.Locker(lock.Config{Backend: lock.Redis{Client: testenv.Client(t, "redis://"+addr, secured)}})
	lock.NeverPoll(waiter)
	go func() {
		next, err := waiter.Acquire(t.Context(), "a")
		if err != nil {
			t.Errorf("a waiter: %v", err)
		}
		got <- next
	}()
	testenv.Eventually(t, "the waiter to listen", func() bool { return w.blocked() == 1 })
	must(t, lock.Extend(t.Context(), held))
	must(t, held.Release())
	must(t, (<-got).Release())

	l := w.Locker(lock.Config{Backend: lock.Redis{Client: testenv.Client(t, "redis://"+addr, func(o *redis.Options) {
		o.TLSConfig, o.DialerRetries, o.MaxRetries = &tls.Config{ServerName: "127.0.0.1"}, 1, -1
	})}})
	_, err = l.TryAcquire(t.Context(), "a")
	locktest.WantRefused(t, "an attempt", err)
	locktest.WantRefused(t, "a check", l.CheckServer(t.Context()))
}
