package lock_test

import (
	"context"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/lock"
)

// A chasm swallows what is sent to MySQL while it is open, and lets no new connection over.
type chasm struct{ open atomic.Bool }

// overChasm is a Config of w's MySQL, beyond it.
func (w *world) overChasm() (*chasm, *mysql.Config) {
	w.Helper()
	config, err := mysql.ParseDSN(w.env.DSN)
	must(w, err)
	c := &chasm{}
	config.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if c.open.Load() {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		return &swallowing{conn, c}, err
	}
	return c, config
}

// A swallowing connection loses all requests while the chasm is open.
type swallowing struct {
	net.Conn
	chasm *chasm
}

func (s *swallowing) Write(p []byte) (int, error) {
	if s.chasm.open.Load() {
		return len(p), nil
	}
	return s.Conn.Write(p)
}

// A process that does not reach MySQL gives the lock up with its caller, and asks for none until MySQL
// has answered.
func TestUnreachableMySQL(t *testing.T) {
	t.Parallel()
	w := withMySQL(t, "a")
	chasm, config := w.overChasm()
	far, near := w.locker(lock.Config{MySQL: config, MintWait: time.Minute}), w.locker(lock.Config{})
	must(t, w.acquire(far, "a").Release())
	chasm.open.Store(true)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err := far.Acquire(ctx, "a")
	wantError(t, "an acquisition", err, context.DeadlineExceeded)

	patience, done := context.WithTimeout(t.Context(), 30*time.Second) // far less than MintWait
	defer done()
	held, err := near.Acquire(patience, "a")
	if err != nil {
		t.Fatalf("the neighbor waits for a lock that a process without MySQL holds: %v", err)
	}
	must(t, held.Release())

	before := w.calls("evalsha")
	if _, err := far.TryAcquire(t.Context(), "b"); err == nil {
		t.Error("a process without MySQL acquires")
	}
	if n := w.calls("evalsha") - before; n != 0 {
		t.Errorf("a process without MySQL has asked Redis %d times", n)
	}

	got := make(chan error, 1)
	go func() {
		held, err := far.Acquire(t.Context(), "a")
		if err == nil {
			err = held.Release()
		}
		got <- err
	}()
	chasm.open.Store(false)
	must(t, <-got)
}

// Acquire waits for a Redis that is unavailable as long as its context lasts, unless FailFast is set.
func TestAcquireOutlivesAnOutage(t *testing.T) {
	t.Parallel()
	server := testenv.OwnRedis(t)
	w := &world{TB: t, addr: server.Addr(), redis: clientOf(t, server.Addr())}
	l, hasty := w.locker(lock.Config{Timeout: 200 * time.Millisecond}), w.locker(lock.Config{FailFast: true})
	must(t, server.Kill())
	_, err := hasty.Acquire(t.Context(), "a")
	if err == nil {
		t.Error("no server, and FailFast acquires")
	}
	wantNot(t, "FailFast", err, context.Canceled)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	_, err = l.Acquire(ctx, "a")
	wantError(t, "no server till the end", err, context.DeadlineExceeded)
	if text := err.Error(); !strings.Contains(text, "ask Redis") {
		t.Errorf("it does not tell why: %s", text)
	}
	if s := l.Statistics(); s.Retries == 0 || s.Failed != 1 {
		t.Errorf("counted: %+v", s)
	}
	got := make(chan error, 1)
	go func() {
		held, err := l.Acquire(t.Context(), "a")
		if err == nil {
			err = held.Release()
		}
		got <- err
	}()
	must(t, server.Restart(t.Context()))
	must(t, <-got)
}
