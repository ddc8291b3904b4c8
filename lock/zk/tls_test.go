package zk_test

import (
	"crypto/tls"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/lock"
	"github.com/unstale/unstale/lock/internal/locktest"
	"github.com/unstale/unstale/lock/zk"
)

// ZooKeeper is used over TLS if Dial uses it, and only with a certificate of a known authority.
// Debian's servers lack libraries for TLS, so a proxy before them ends TLS.
func TestZooKeeperTLS(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	certificate := testenv.NewCertificate(t)
	backend := w.Backend.(zk.Backend)
	backend.Servers = []string{endTLS(t, certificate, backend.Servers[0])}
	backend.Dial = (&tls.Dialer{Config: &tls.Config{RootCAs: certificate.Authorities}}).DialContext
	l := w.Locker(lock.Config{Backend: backend})
	held := w.Acquire(l, "a")
	must(t, w.extend(t.Context(), held))
	must(t, held.Release())

	backend.Dial = new(tls.Dialer).DialContext
	l = w.Locker(lock.Config{Backend: backend, Timeout: time.Second})
	testenv.Eventually(t, "an attempt that has met the server", func() bool {
		_, err := l.TryAcquire(t.Context(), "a")
		if err == nil || !strings.Contains(err.Error(), "certificate") {
			return false
		}
		locktest.WantRefused(t, "an attempt", err)
		return true
	})
}

// endTLS forwards TLS connections of clients to a server, in plain text. It ends with the test.
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
