package lock_test

import (
	"crypto/tls"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/lock"
)

// wantRefused wants an error to tell that a certificate is refused, and what to do.
func wantRefused(t *testing.T, what string, err error) {
	t.Helper()
	for _, want := range []string{"certificate signed by unknown authority", "RootCAs"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, wanted %q", what, err, want)
		}
	}
}

// Redis is asked by TLS where its client says so, and only if its certificate is from an authority that is known.
func TestRedisTLS(t *testing.T) {
	t.Parallel()
	certificate := testenv.NewCertificate(t)
	addr := certificate.OwnTLSRedis(t)
	options, err := redis.ParseURL("rediss://" + addr)
	must(t, err)
	options.TLSConfig.RootCAs = certificate.Authorities
	secured := func(o *redis.Options) { o.TLSConfig = options.TLSConfig }
	w := &world{TB: t, addr: addr, redis: clientOf(t, addr, secured)}
	held := w.acquire(w.locker(lock.Config{}), "a")
	got := make(chan *lock.Held, 1)
	waiter := w.locker(lock.Config{Backend: lock.Redis{Client: clientOf(t, addr, secured)}})
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

	l := w.locker(lock.Config{Backend: lock.Redis{Client: clientOf(t, addr, func(o *redis.Options) {
		o.TLSConfig, o.DialerRetries, o.MaxRetries = &tls.Config{ServerName: "127.0.0.1"}, 1, -1
	})}})
	_, err = l.TryAcquire(t.Context(), "a")
	wantRefused(t, "an attempt", err)
	wantRefused(t, "a check", l.CheckServer(t.Context()))
}

// ZooKeeper is asked by TLS where Dial says so, and only if the certificate is from an authority that is known. Debian's servers lack
// what they need to speak TLS, so that it ends in front of them.
func TestZooKeeperTLS(t *testing.T) {
	t.Parallel()
	w := newZooWorld(t)
	certificate := testenv.NewCertificate(t)
	backend := w.backend.(lock.ZooKeeper)
	backend.Servers = []string{endTLS(t, certificate, backend.Servers[0])}
	backend.Dial = (&tls.Dialer{Config: &tls.Config{RootCAs: certificate.Authorities}}).DialContext
	l := w.locker(lock.Config{Backend: backend})
	held := w.acquire(l, "a")
	must(t, lock.Extend(t.Context(), held))
	must(t, held.Release())

	backend.Dial = new(tls.Dialer).DialContext
	l = w.locker(lock.Config{Backend: backend, Timeout: time.Second})
	testenv.Eventually(t, "an attempt that has met the server", func() bool {
		_, err := l.TryAcquire(t.Context(), "a")
		if err == nil || !strings.Contains(err.Error(), "problem") {
			return false
		}
		wantRefused(t, "an attempt", err)
		return true
	})
}

// endTLS passes on to a server, in the clear, what clients say by TLS. It ends with the test.
func endTLS(t *testing.T, certificate *testenv.Certificate, addr string) string {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(certificate.CertFile, certificate.KeyFile)
	must(t, err)
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}})
	must(t, err)
	var group sync.WaitGroup
	t.Cleanup(func() {
		_ = listener.Close()
		group.Wait()
	})
	pass := func(to, from net.Conn) {
		_, _ = io.Copy(to, from)
		_, _ = to.Close(), from.Close()
	}
	group.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", addr)
			if err != nil {
				_ = client.Close()
				continue
			}
			group.Go(func() { pass(server, client) })
			group.Go(func() { pass(client, server) })
		}
	})
	return listener.Addr().String()
}
