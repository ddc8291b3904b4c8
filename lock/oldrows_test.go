package lock_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/unstale/unstale/internal/session"
	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/lock"
)

// worker returns the part of one that removes old rows of locks.
func (w *world) worker() *session.Sessions {
	w.Helper()
	dsn, err := session.ParseDSN(w.Env.DSN)
	must(w, err)
	s, err := session.Open(session.Config{MySQL: dsn, Worker: "test"})
	must(w, err)
	w.Cleanup(func() { must(w, s.Close()) })
	return s
}

// A worker removes old rows, and no others; a lock that was held all the while is refused, and a
// new acquisition is not. While its section has the row locked, it stays.
func TestOldRows(t *testing.T) {
	t.Parallel()
	w := withMySQL(t, "old", "young", "inside")
	l, s := w.Locker(lock.Config{}), w.worker()
	old, young, inside := w.Acquire(l, "old"), w.Acquire(l, "young"), w.Acquire(l, "inside")
	w.SQL("UPDATE cache_outbox_locks SET minted_at = minted_at - INTERVAL 31 DAY WHERE name <> 'young'")
	expire := func(want int64) {
		t.Helper()
		if n, err := store.NewLockRows(s).ExpireLocks(t.Context(), &store.LockWalk{}, 30*24*time.Hour, 1000); err != nil || n != want {
			t.Errorf("%d rows, %v, wanted %d", n, err, want)
		}
	}
	section := func(held *lock.Held, do func()) error {
		return held.InTx(t.Context(), w.quick("600"), func(*sql.Tx) error { do(); return nil })
	}
	must(t, section(inside, func() { expire(1) }))
	expire(1)
	nothing := func() {}
	wantError(t, "the old one", section(old, nothing), lock.ErrLost)
	wantError(t, "the one that was inside", section(inside, nothing), lock.ErrLost)
	must(t, section(young, nothing))
	wantError(t, "the release of the old one", old.Release(), lock.ErrLost)
	must(t, section(w.Acquire(l, "old"), nothing))
}

// Rows that are removed constantly, each as soon as it is unlocked, lose no update and fail no
// acquisition.
func TestRemovedRows(t *testing.T) {
	t.Parallel()
	names := []string{"a", "b", "c"}
	w := withMySQL(t, names...)
	s := w.worker()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var removed atomic.Int64
	var remover, tills sync.WaitGroup
	remover.Go(func() {
		for ctx.Err() == nil {
			n, err := store.NewLockRows(s).ExpireLocks(ctx, &store.LockWalk{}, time.Microsecond, 1000)
			if removed.Add(n); err != nil && ctx.Err() == nil {
				t.Error(err)
			}
		}
	})
	var mu sync.Mutex
	kept := map[string]int{}
	for i := range 6 {
		l, name := w.Locker(lock.Config{}), names[i%len(names)]
		tills.Go(func() {
			for i := 0; i < 20 || removed.Load() < 20 && !t.Failed(); i++ {
				err := l.Do(t.Context(), name, func(ctx context.Context, held *lock.Held) error {
					err := held.InTx(ctx, w.Env.DB, func(tx *sql.Tx) error { return add(ctx, tx, name) })
					mu.Lock()
					defer mu.Unlock()
					switch {
					case err == nil:
						kept[name]++
					case !errors.Is(err, lock.ErrLost):
						return fmt.Errorf("a section: %w", err)
					}
					return nil
				})
				if err != nil && !errors.Is(err, lock.ErrLost) { // which Release tells again
					t.Error(err)
				}
			}
		})
	}
	tills.Wait()
	stop()
	remover.Wait()
	for _, name := range names {
		if n := w.Counter(name); n != kept[name] {
			t.Errorf("%s is %d after %d sections", name, n, kept[name])
		}
	}
	t.Logf("%d rows were removed, and sections kept are %v", removed.Load(), kept)
}
