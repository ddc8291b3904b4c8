package lock_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/lock"
	"github.com/unstale/unstale/lock/internal/locktest"
)

// overChasm returns a Config of w's MySQL, beyond it.
func (w *world) overChasm() (*locktest.Chasm, *mysql.Config) {
	w.Helper()
	config, err := mysql.ParseDSN(w.Env.DSN)
	must(w, err)
	c := &locktest.Chasm{}
	config.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if c.Open.Load() {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return c.Dial(ctx, network, addr)
	}
	return c, config
}

// A process that does not reach MySQL gives the lock up with its caller, and asks for none until
// MySQL has answered.
func TestUnreachableMySQL(t *testing.T) {
	t.Parallel()
	w := withMySQL(t, "a")
	chasm, config := w.overChasm()
	far, near := w.Locker(lock.Config{MySQL: config, MintWait: time.Minute}), w.Locker(lock.Config{})
	must(t, w.Acquire(far, "a").Release())
	chasm.Open.Store(true)
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
	chasm.Open.Store(false)
	must(t, <-got)
}

// A process that loses MySQL while many of its mints are running releases all their locks together:
// one ping covers them all.
func TestUnreachableMySQLManyNames(t *testing.T) {
	t.Parallel()
	w := withMySQL(t)
	chasm, config := w.overChasm()
	far, near := w.Locker(lock.Config{MySQL: config, MintWait: 10 * time.Minute}), w.Locker(lock.Config{})
	must(t, w.Acquire(far, "a").Release())
	chasm.Open.Store(true)
	const names = 60 // a ping for each would take two minutes
	given := make(chan error, names)
	for n := range names {
		go func() {
			_, err := far.TryAcquire(t.Context(), fmt.Sprint("a", n))
			given <- err
		}()
	}
	testenv.Eventually(t, "the far process to have all locks", func() bool { return w.redis.DBSize(t.Context()).Val() == names })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for n := range names {
		held, err := near.Acquire(ctx, fmt.Sprint("a", n))
		if err != nil {
			t.Fatalf("the neighbor waits for lock %d: %v", n, err)
		}
		must(t, held.Release())
	}
	for range names {
		if err := <-given; err == nil || !strings.Contains(err.Error(), "MySQL does not answer") {
			t.Errorf("a process without MySQL: %v", err)
		}
	}
}

// Acquire waits for a Redis that is unavailable as long as its context lasts, unless FailFast is
// set.
func TestAcquireOutlivesAnOutage(t *testing.T) {
	t.Parallel()
	server := testenv.OwnRedis(t)
	w := worldAt(t, server.Addr())
	l, hasty := w.Locker(lock.Config{Timeout: 200 * time.Millisecond}), w.Locker(lock.Config{FailFast: true})
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
