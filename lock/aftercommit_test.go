package lock_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/unstale/unstale/lock"
)

// wantNot fails if err wraps any of them.
func wantNot(t testing.TB, what string, err error, unwanted ...error) {
	t.Helper()
	for _, one := range unwanted {
		if errors.Is(err, one) {
			t.Errorf("%s: %v, which is %v", what, err, one)
		}
	}
}

// A caller that begins again after each ErrLost counts each operation once, although Redis loses
// every lock between COMMIT and release.
func TestLostAfterCommit(t *testing.T) {
	t.Parallel()
	w := withMySQL(t, "a", "b")
	l := w.Locker(lock.Config{})
	lose := func() { must(t, w.redis.Del(t.Context(), key).Err()) }
	count := func(ctx context.Context, held *lock.Held) error {
		return held.InTx(ctx, w.Env.DB, func(tx *sql.Tx) error { return add(ctx, tx, "a") })
	}
	const operations = 20
	for range operations {
		for {
			err := l.Do(t.Context(), "a", func(ctx context.Context, held *lock.Held) error {
				defer lose()
				return count(ctx, held)
			})
			wantError(t, "a section that was committed", err, lock.ErrLostAfterCommit)
			if !errors.Is(err, lock.ErrLost) {
				break
			}
		}
	}
	if n := w.Counter("a"); n != operations {
		t.Fatalf("%d operations counted %d", operations, n)
	}

	mine := errors.New("mine")
	err := l.Do(t.Context(), "a", func(ctx context.Context, held *lock.Held) error {
		must(t, count(ctx, held))
		_ = lock.Expire(held)
		<-ctx.Done()
		return errors.Join(mine, context.Cause(ctx))
	})
	wantError(t, "a section that returns why its context ended", err, lock.ErrLostAfterCommit, mine)
	wantNot(t, "a section that returns why its context ended", err, lock.ErrLost)

	err = l.Do(t.Context(), "a", func(ctx context.Context, held *lock.Held) error {
		must(t, count(ctx, held))
		_ = lock.Expire(held)
		_ = count(ctx, held)
		return nil
	})
	wantError(t, "a second InTx that was refused", err, lock.ErrLost)
	wantNot(t, "a second InTx that was refused", err, lock.ErrLostAfterCommit)

	held := w.Acquire(l, "a")
	must(t, count(t.Context(), held))
	func() {
		defer func() { _ = recover() }()
		_ = held.InTx(t.Context(), w.Env.DB, func(*sql.Tx) error { panic("no") })
	}()
	lose()
	err = held.Release()
	wantError(t, "a second InTx that panicked", err, lock.ErrLost)

	all := w.acquireAll(l, "a", "b")
	must(t, w.addBoth(t.Context(), all))
	lose()
	err = all.Release()
	wantError(t, "one of several locks", err, lock.ErrLostAfterCommit)
	wantNot(t, "one of several locks", err, lock.ErrLost)
}
