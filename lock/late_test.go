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

	"github.com/unstale/unstale/internal/proxy"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/lock"
)

// disturbed is a client of w's Redis whose connections can be disturbed.
func (w *world) disturbed(change func(*redis.Options)) (*proxy.Link, *redis.Client) {
	w.Helper()
	link, err := proxy.New("redis", w.addr)
	must(w, err)
	w.Cleanup(link.Close)
	return link, clientOf(w, link.Addr(), change)
}

// warm returns when the client has a connection that is well: a greeting would be disturbed as well.
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

// After a reply that is lost the Locker gives the claim back, and acquires with another token. A plain SET NX reports that the lock
// is taken.
func TestLostReply(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var lose atomic.Bool
	client := clientOf(t, w.addr, func(o *redis.Options) {
		o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
			return forgetful{conn, &lose}, err
		}
	})
	l := w.locker(lock.Config{Backend: lock.Redis{Client: client}})
	must(t, w.acquire(l, "warm").Release()) // the scripts are there, the clock is known, and a connection has greeted
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
	l := w.locker(lock.Config{Backend: lock.Redis{Client: client}, Timeout: 500 * time.Millisecond})
	must(t, w.acquire(l, "warm").Release())
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

// A request over a slow way arrives after its caller has given up, by less than the round trip that the clock was learned from.
func TestLateWithinTheRoundTrip(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	link, client := w.disturbed(func(*redis.Options) {})
	l := w.locker(lock.Config{Backend: lock.Redis{Client: client}, Timeout: 3 * time.Second})
	must(t, w.acquire(l, "warm").Release())
	must(t, link.SlowRequests(1000))
	must(t, w.acquire(l, "warm").Release())
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

// parted is a connection that breaks for its user when it writes a script, which arrives later all the same.
type parted struct {
	net.Conn
	part   *atomic.Bool
	arrive chan struct{}
	gone   chan error
}

func (p parted) Write(b []byte) (int, error) {
	if !strings.Contains(string(b), "evalsha") || !p.part.CompareAndSwap(true, false) {
		return p.Conn.Write(b)
	}
	go func() {
		<-p.arrive
		_, err := p.Conn.Write(b)
		p.gone <- err
	}()
	return 0, syscall.ECONNRESET
}

func (p parted) Close() error { return nil } // the test ends it

// A copy of a request that arrives after the release has no owner. It is released when its window is over, and not after TTL.
func TestCopyAfterTheRelease(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var part atomic.Bool
	arrive, gone := make(chan struct{}), make(chan error, 1)
	client := clientOf(t, w.addr, func(o *redis.Options) {
		o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
			if err == nil {
				t.Cleanup(func() { _ = conn.Close() })
			}
			return parted{conn, &part, arrive, gone}, err
		}
	})
	l := w.locker(lock.Config{Backend: lock.Redis{Client: client}, Timeout: 3 * time.Second})
	must(t, w.acquire(l, "a").Release())
	part.Store(true)
	must(t, w.acquire(l, "a").Release())
	if part.Load() {
		t.Fatal("no request was parted from its sender")
	}
	before := w.calls("evalsha")
	close(arrive)
	must(t, <-gone)
	testenv.Eventually(t, "the copy to arrive", func() bool { return w.calls("evalsha") > before })
	testenv.Eventually(t, "the lock to be free long before TTL", func() bool { return w.redis.Exists(t.Context(), key).Val() == 0 })
}

// A server whose clock is another than is remembered tells its time, and the lock is had all the same.
func TestClockIsSet(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l := w.locker(lock.Config{})
	for _, jump := range []time.Duration{time.Hour, -time.Hour} {
		must(t, w.acquire(l, "a").Release())
		lock.Misremember(l, jump)
		before := w.calls("evalsha")
		must(t, w.acquire(l, "a").Release())
		if n := w.calls("evalsha") - before; n != 3 {
			t.Errorf("%v: %d scripts, wanted a refusal, an acquisition and a release", jump, n)
		}
	}
}
