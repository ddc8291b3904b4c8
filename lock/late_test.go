package lock_test

import (
	"context"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/lock"
)

// disturbed returns a client of w's Redis whose connections can be disturbed.
func (w *world) disturbed(change func(*redis.Options)) (*servers.Link, *redis.Client) {
	w.Helper()
	link, err := servers.NewLink("redis", w.addr)
	must(w, err)
	w.Cleanup(link.Close)
	return link, testenv.Client(w, "redis://"+link.Addr(), change)
}

// warm returns when the client has a connection that is well: a greeting would be disturbed as
// well.
func warm(t *testing.T, client *redis.Client) {
	t.Helper()
	testenv.Eventually(t, "a connection", func() bool { return client.Ping(t.Context()).Err() == nil })
}

// forgetful is a connection that loses one answer when told to, with itself.
type forgetful struct {
	net.Conn
	lose *atomic.Bool
}

func (f forgetful) Read(p []byte) (int, error) {
	n, err := f.Conn.Read(p)
	if n > 0 && f.lose.CompareAndSwap(true, false) {
		_ = f.Conn.Close()
		return 0, syscall.ECONNRESET
	}
	return n, err
}

// After a reply that is lost the Locker gives the claim back, and acquires with another token. A
// plain SET NX reports that the lock is taken.
func TestLostReply(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var lose atomic.Bool
	client := testenv.Client(t, "redis://"+w.addr, func(o *redis.Options) {
		o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
			return forgetful{conn, &lose}, err
		}
	})
	l := w.Locker(lock.Config{Backend: lock.Redis{Client: client}})
	// the scripts are loaded, the clock is known, and a connection is established
	must(t, w.Acquire(l, "warm").Release())
	before := w.calls("evalsha")
	lose.Store(true)
	held, err := l.TryAcquire(t.Context(), "a")
	must(t, err)
	if n := w.calls("evalsha") - before; n != 3 || lose.Load() {
		t.Errorf("%d scripts, wanted two acquisitions and a release", n)
	}
	must(t, held.Release())

	lose.Store(true)
	if set, err := client.SetNX(t.Context(), "plain", "1", time.Hour).Result(); set || err != nil || lose.Load() {
		t.Errorf("a plain SET NX says %t, %v: the fault shows nothing", set, err)
	}
}

// A request that arrives when its caller has given up locks nothing. A plain SET NX does.
func TestLateCopy(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const delay = 1500 * time.Millisecond
	link, client := w.disturbed(func(o *redis.Options) { o.MaxRetries = -1 })
	l := w.Locker(lock.Config{Backend: lock.Redis{Client: client}, Timeout: 500 * time.Millisecond})
	must(t, w.Acquire(l, "warm").Release())
	before, sets := w.calls("evalsha"), w.calls("set")
	must(t, link.SlowRequests(int(delay.Milliseconds())))
	if _, err := l.TryAcquire(t.Context(), "a"); err == nil {
		t.Fatal("an answer came in time: the delay shows nothing")
	}
	testenv.Eventually(t, "the late copy", func() bool { return w.calls("evalsha") > before })
	if n := w.redis.Exists(t.Context(), key).Val(); n != 0 {
		t.Errorf("it has locked: %q", w.redis.Get(t.Context(), key).Val())
	}
	must(t, link.Heal(t.Context()))
	warm(t, client)
	must(t, link.SlowRequests(int(delay.Milliseconds())))
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if err := client.SetNX(ctx, "plain", "1", time.Hour).Err(); err == nil {
		t.Fatal("an answer came in time: the delay shows nothing")
	}
	testenv.Eventually(t, "the late SET", func() bool { return w.calls("set") > sets })
	if n := w.redis.Exists(t.Context(), "plain").Val(); n != 1 {
		t.Error("a late SET NX has not locked: the fault shows nothing")
	}
}

// A request over a slow way arrives after its caller has given up, by less than the round trip that
// the clock was learned from.
func TestLateWithinTheRoundTrip(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	link, client := w.disturbed(func(*redis.Options) {})
	l := w.Locker(lock.Config{Backend: lock.Redis{Client: client}, Timeout: 3 * time.Second})
	must(t, w.Acquire(l, "warm").Release())
	must(t, link.SlowRequests(1000))
	must(t, w.Acquire(l, "warm").Release())
	before, sets := w.calls("evalsha"), w.calls("set")
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if _, err := l.TryAcquire(ctx, "a"); err == nil {
		t.Fatal("an answer came in time: the delay shows nothing")
	}
	testenv.Eventually(t, "the late request", func() bool { return w.calls("evalsha") > before })
	if n := w.calls("set") - sets; n != 0 {
		t.Error("it has locked")
	}
	must(t, link.Heal(t.Context()))
}

// A parting cuts a request off from its sender. It arrives later all the same.
type parting struct {
	testing.TB
	armed atomic.Bool
	late  chan struct{}
	gone  chan error
}

func newParting(t testing.TB) *parting {
	return &parting{TB: t, late: make(chan struct{}), gone: make(chan error, 1)}
}

// arm parts the next script.
func (p *parting) arm() { p.armed.Store(true) }

// arrive delivers the request.
func (p *parting) arrive() {
	p.Helper()
	if p.armed.Load() {
		p.Fatal("no request was parted from its sender")
	}
	close(p.late)
	must(p, <-p.gone)
}

func (p *parting) wrap(conn net.Conn) net.Conn {
	if conn == nil {
		return nil
	}
	p.Cleanup(func() { _ = conn.Close() })
	return parted{conn, p}
}

// parted is a connection that breaks for its user when it writes the script that is parted.
type parted struct {
	net.Conn
	parting *parting
}

func (p parted) Write(b []byte) (int, error) {
	if !strings.Contains(string(b), "evalsha") || !p.parting.armed.CompareAndSwap(true, false) {
		return p.Conn.Write(b)
	}
	go func() {
		<-p.parting.late
		_, err := p.Conn.Write(b)
		p.parting.gone <- err
	}()
	return 0, syscall.ECONNRESET
}

func (p parted) Close() error { return nil } // the test ends it

// A copy of a request that arrives after the release has no owner. It is released when its window
// ends, and not after TTL.
func TestCopyAfterTheRelease(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	part := newParting(t)
	client := testenv.Client(t, "redis://"+w.addr, func(o *redis.Options) { o.Dialer = part.dial })
	copyAfterTheRelease(t, part, client, w.redis)
}

// The same in a Redis Cluster, whose client has its own retries.
func TestCopyAfterTheReleaseInCluster(t *testing.T) {
	t.Parallel()
	cluster := testenv.OwnCluster(t, 3, false)
	part := newParting(t)
	torn := *cluster.Client.Options()
	torn.ContextTimeoutEnabled = true
	torn.Dialer = part.dial
	client := redis.NewClusterClient(&torn)
	t.Cleanup(func() { _ = client.Close() })
	master, err := cluster.Client.MasterForKey(t.Context(), key)
	must(t, err)
	copyAfterTheRelease(t, part, client, master)
}

func (p *parting) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	return p.wrap(conn), err
}

// copyAfterTheRelease parts an acquisition by client from its sender. server keeps the lock.
func copyAfterTheRelease(t *testing.T, part *parting, client redis.UniversalClient, server *redis.Client) {
	t.Helper()
	w := worldOf(t, server)
	l := w.Locker(lock.Config{Backend: lock.Redis{Client: client}, Timeout: 3 * time.Second})
	must(t, w.Acquire(l, "a").Release())
	part.arm()
	must(t, w.Acquire(l, "a").Release())
	before := w.calls("evalsha")
	part.arrive()
	testenv.Eventually(t, "the copy to arrive", func() bool { return w.calls("evalsha") > before })
	testenv.Eventually(t, "the lock to be free long before TTL", func() bool { return server.Exists(t.Context(), key).Val() == 0 })
}

// A server whose clock was set returns its time, and the lock is acquired anyway.
func TestClockIsSet(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l := w.Locker(lock.Config{})
	for _, jump := range []time.Duration{time.Hour, -time.Hour} {
		must(t, w.Acquire(l, "a").Release())
		lock.Misremember(l, jump)
		before := w.calls("evalsha")
		must(t, w.Acquire(l, "a").Release())
		if n := w.calls("evalsha") - before; n != 3 {
			t.Errorf("%v: %d scripts, wanted a refusal, an acquisition and a release", jump, n)
		}
	}
}
