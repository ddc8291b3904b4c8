package lock_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/unstale/unstale/lock"
)

// Every outcome of an acquisition and every end of a lock is counted once.
func TestStatistics(t *testing.T) {
	t.Parallel()
	w := withMySQL(t)
	l := w.Locker(lock.Config{MintWait: time.Second})
	expect := func(what string, want lock.Statistics) {
		t.Helper()
		got := l.Statistics()
		for _, d := range []struct {
			name  string
			got   *lock.Durations
			count uint64
		}{{"wait", &got.Wait, want.Acquired}, {"hold", &got.Hold, want.Acquired - uint64(want.Holding)}, {"mint", &got.Mint, want.Acquired + want.GuardOpen}} {
			if d.got.Count != d.count || (d.got.Sum > 0) != (d.count > 0) || d.got.Below[9] > d.count {
				t.Errorf("%s: %s is %+v, wanted %d", what, d.name, *d.got, d.count)
			}
			*d.got = lock.Durations{}
		}
		if got != want {
			t.Errorf("%s: %+v, wanted %+v", what, got, want)
		}
	}
	expect("nothing", lock.Statistics{})

	a := w.Acquire(l, "a")
	_, err := l.TryAcquire(t.Context(), "a")
	if !errors.As(err, new(*lock.HeldError)) {
		t.Errorf("%v", err)
	}
	expect("one is held", lock.Statistics{Acquired: 1, Held: 1, Holding: 1})
	must(t, a.Release())
	must(t, a.Release())
	expect("it is released", lock.Statistics{Acquired: 1, Held: 1})

	over, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = l.Acquire(over, "a")
	wantError(t, "a context that is over", err, context.Canceled)
	expect("one failed", lock.Statistics{Acquired: 1, Held: 1, Failed: 1})

	vanished, replaced := w.Acquire(l, "vanished"), w.Acquire(l, "replaced")
	must(t, w.redis.Del(t.Context(), "lock:{vanished}").Err())
	wantError(t, "the release", vanished.Release(), lock.ErrLost)
	w.SQL("UPDATE cache_outbox_locks SET token = X'00' WHERE name = 'replaced'")
	for range 2 {
		wantError(t, "the section", replaced.InTx(t.Context(), w.Env.DB, func(*sql.Tx) error { return nil }), lock.ErrLost)
	}
	expect("two are lost", lock.Statistics{Acquired: 3, Held: 1, Failed: 1, Lost: 2})
	wantError(t, "the release", replaced.Release(), lock.ErrLost)

	tx := w.begin(w.Env.DB, nil)
	_, err = tx.ExecContext(t.Context(), "SELECT * FROM cache_outbox_locks WHERE name = 'a' FOR UPDATE")
	must(t, err)
	_, err = l.Acquire(t.Context(), "a")
	wantError(t, "a section that is open", err, lock.ErrGuardOpen)
	expect("a section was open", lock.Statistics{Acquired: 3, Held: 1, Failed: 1, Lost: 2, GuardOpen: 1})
}
