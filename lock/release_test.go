package lock_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/lock"
	"github.com/unstale/unstale/lock/internal/locktest"
)

// A section whose release gets no answer has done its work, and Do returns what it returned.
func TestUnconfirmedRelease(t *testing.T) {
	t.Parallel()
	over := func(c *locktest.Chasm) func(*redis.Options) {
		return func(o *redis.Options) { o.Dialer = c.Dial }
	}
	t.Run("Redis", func(t *testing.T) {
		t.Parallel()
		w, cut := newWorld(t), &locktest.Chasm{}
		w.Backend = lock.Redis{Client: testenv.Client(t, "redis://"+w.addr, over(cut))}
		w.UnconfirmedRelease(cut)
	})
	t.Run("Redlock", func(t *testing.T) {
		t.Parallel()
		three, cut := newInstances(t, 3), &locktest.Chasm{}
		three.Backend = lock.Redlock{Clients: three.clients(over(cut))}
		three.UnconfirmedRelease(cut)
	})
}

// Release asks again after a call without an answer, and no more after one with an answer.
func TestReleaseAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	cut := &locktest.Chasm{}
	client := testenv.Client(t, "redis://"+w.addr, func(o *redis.Options) { o.Dialer = cut.Dial })
	l := w.Locker(lock.Config{Backend: lock.Redis{Client: client}, Timeout: 3 * time.Second})
	warm(t, client)
	held, all := w.Acquire(l, "a"), w.acquireAll(l, "b", "c")
	cut.Open.Store(true)
	for range 2 {
		for _, err := range []error{held.Release(), all.Release()} {
			if err == nil {
				t.Error("a release without an answer is confirmed")
			}
			wantNot(t, "a release without an answer", err, lock.ErrLost)
		}
	}
	cut.Open.Store(false)
	must(t, held.Release())
	must(t, all.Release())
	if keys, err := w.redis.Keys(t.Context(), "lock:*").Result(); err != nil || len(keys) > 0 {
		t.Errorf("%q are left, %v", keys, err)
	}
	before := w.calls("evalsha")
	must(t, held.Release())
	must(t, all.Release())
	if n := w.calls("evalsha") - before; n != 0 {
		t.Errorf("%d scripts after the release was confirmed", n)
	}
	if s := l.Statistics(); s.Unconfirmed != 3 || s.Lost != 0 {
		t.Errorf("%+v", s)
	}
}

// A Locker that is closed between COMMIT and the release has lost none of the work.
func TestClosedAfterCommit(t *testing.T) {
	t.Parallel()
	w := withMySQL(t, "a")
	l := w.Locker(lock.Config{})
	err := l.Do(t.Context(), "a", func(ctx context.Context, held *lock.Held) error {
		must(t, held.InTx(ctx, w.Env.DB, func(tx *sql.Tx) error { return add(ctx, tx, "a") }))
		must(t, l.Close())
		return nil
	})
	wantError(t, "a section that was committed", err, lock.ErrLostAfterCommit, lock.ErrClosed)
	if n := w.Counter("a"); n != 1 {
		t.Errorf("the section counted %d", n)
	}
}
