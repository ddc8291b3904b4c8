package lock_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/lock"
)

// addBoth is a section that adds to both counters.
func (w *world) addBoth(ctx context.Context, held interface {
	InTx(ctx context.Context, db lock.Pool, fn func(tx *sql.Tx) error) error
}) error {
	return held.InTx(ctx, w.Env.DB, func(tx *sql.Tx) error {
		return errors.Join(add(ctx, tx, "a"), add(ctx, tx, "b"))
	})
}

func (w *world) acquireAll(l *lock.Locker, names ...string) *lock.HeldAll {
	w.Helper()
	held, err := l.AcquireAll(w.Context(), names)
	must(w, err)
	w.Cleanup(func() { _ = held.Release() })
	return held
}

func (w *world) wantKeys(wanted string) {
	w.Helper()
	var found []string
	for _, name := range []string{"a", "b", "c"} {
		if w.redis.Exists(w.Context(), "lock:{"+name+"}").Val() == 1 {
			found = append(found, name)
		}
	}
	if got := strings.Join(found, " "); got != wanted {
		w.Errorf("the locks that somebody has are %q, wanted %q", got, wanted)
	}
}

// Holders of the same locks, given in other orders, never wait for each other in a circle, and no
// update is lost.
func TestAcquireAll(t *testing.T) {
	t.Parallel()
	w := withMySQL(t, "a", "b")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var group sync.WaitGroup
	orders := [][]string{{"a", "b"}, {"b", "a", "b"}}
	const times = 15
	for _, names := range orders {
		l := w.Locker(lock.Config{})
		group.Go(func() {
			for range times {
				err := l.DoAll(ctx, names, func(ctx context.Context, held *lock.HeldAll) error {
					w.wantKeys("a b")
					return w.addBoth(ctx, held)
				})
				if err != nil {
					t.Errorf("%q: %v", names, err)
					return
				}
			}
		})
	}
	group.Wait()
	if a, b := w.Counter("a"), w.Counter("b"); a != times*len(orders) || b != times*len(orders) {
		t.Errorf("the counters are %d and %d", a, b)
	}
	w.wantKeys("")
}

// A caller that waits for a lock has none of those that follow it by name, in any requested order.
func TestAcquireAllInOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	before := w.Acquire(w.Locker(lock.Config{}), "b")
	waiting, got := w.Locker(lock.Config{}), make(chan *lock.HeldAll, 1)
	go func() {
		held, err := waiting.AcquireAll(t.Context(), []string{"c", "b", "a", "c"})
		if err != nil {
			t.Errorf("a waiter: %v", err)
		}
		got <- held
	}()
	testenv.Eventually(t, "the waiter to listen", func() bool { return w.blocked() == 1 })
	w.wantKeys("a b")
	must(t, before.Release())
	held := <-got
	if held == nil {
		t.FailNow()
	}
	w.wantKeys("a b c")
	if list := held.Locks(); len(list) != 3 || list[0].Name() != "a" || list[1].Name() != "b" || list[2].Name() != "c" {
		t.Errorf("%d locks, the first is %q", len(list), list[0].Name())
	}
	must(t, context.Cause(held.Context()))
	must(t, held.Release())
	must(t, held.Release())
	w.wantKeys("")
	wantError(t, "its context", context.Cause(held.Context()), lock.ErrReleased)
}

// One lost lock is enough: the section is refused, the context ends, and the others are released.
func TestOneOfAllIsLost(t *testing.T) {
	t.Parallel()
	w := withMySQL(t, "a", "b")
	ours, theirs := w.Locker(lock.Config{}), w.Locker(lock.Config{})
	for _, lost := range []string{"a", "b"} {
		held := w.acquireAll(ours, "a", "b")
		must(t, held.InTx(t.Context(), w.Env.DB, func(*sql.Tx) error {
			for _, name := range []string{"a", "b"} {
				if _, err := w.Env.DB.ExecContext(t.Context(), "SELECT token FROM cache_outbox_locks WHERE name = ? FOR UPDATE NOWAIT", name); err == nil {
					t.Errorf("the row of %q is free in a section", name)
				}
			}
			return nil
		}))
		must(t, w.redis.Del(t.Context(), "lock:{"+lost+"}").Err()) // as a failover of Redis would
		next := w.Acquire(theirs, lost)
		must(t, context.Cause(held.Context()))
		wantError(t, "a section without "+lost, w.addBoth(t.Context(), held), lock.ErrLost)
		<-held.Context().Done()
		wantError(t, "the context without "+lost, context.Cause(held.Context()), lock.ErrLost)
		wantError(t, "the release without "+lost, held.Release(), lock.ErrLost)
		w.wantKeys(lost)
		must(t, next.Release())
	}
	err := ours.DoAll(t.Context(), []string{"a", "b"}, func(ctx context.Context, held *lock.HeldAll) error {
		wantError(t, "a lease that is over", lock.Expire(held.Locks()[1]), lock.ErrLost)
		<-ctx.Done()
		return nil
	})
	wantError(t, "a function that says nothing of a loss", err, lock.ErrLost)
	w.wantKeys("")
	if a, b := w.Counter("a"), w.Counter("b"); a != 0 || b != 0 {
		t.Errorf("the counters are %d and %d", a, b)
	}
}

// Acquired locks are released when the rest cannot be acquired, and when one is lost during the
// wait.
func TestAcquireAllFails(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Acquire(w.Locker(lock.Config{}), "b")
	for _, names := range [][]string{nil, {"a", ""}, {"a", "b{"}} {
		if _, err := w.Locker(lock.Config{}).AcquireAll(t.Context(), names); err == nil {
			t.Errorf("%q are taken for names", names)
		}
	}
	for what, test := range map[string]struct {
		end  func(l *lock.Locker, cancel context.CancelFunc)
		want error
	}{
		"giving up": {func(_ *lock.Locker, cancel context.CancelFunc) { cancel() }, context.Canceled},
		"a loss":    {func(l *lock.Locker, _ context.CancelFunc) { lock.ExpireAll(l) }, lock.ErrLost},
	} {
		l := w.Locker(lock.Config{})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		gone := make(chan error, 1)
		go func() {
			_, err := l.AcquireAll(ctx, []string{"a", "b"})
			gone <- err
		}()
		testenv.Eventually(t, "the waiter to have the first", func() bool { return len(gone) == 1 || w.redis.Exists(t.Context(), key).Val() == 1 })
		testenv.Eventually(t, "the waiter to listen", func() bool { return len(gone) == 1 || w.blocked() == 1 })
		test.end(l, cancel)
		err := <-gone
		wantError(t, what, err, test.want)
		if told := (*lock.HeldError)(nil); !errors.As(err, &told) || told.Name != "b" {
			t.Errorf("%s: %v", what, err)
		}
		w.wantKeys("b")
		must(t, l.Close()) // which waits until it no longer listens
	}
}
