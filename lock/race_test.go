package lock_test

import (
	"context"
	"testing"
	"time"

	"github.com/unstale/unstale/lock"
	"github.com/unstale/unstale/lock/internal/locktest"
)

func newRace(t *testing.T) *locktest.Race {
	w := newWorld(t)
	return locktest.NewRace(w.World, func(name string) bool { return w.redis.Del(t.Context(), "lock:{"+name+"}").Val() == 1 })
}

// Sentence 1: guarded sections lose no update, though their locks are lost, before the transaction
// and in it.
func TestGuardedRace(t *testing.T) {
	t.Parallel()
	newRace(t).Guarded()
}

// Unguarded sections lose some updates, or the race above shows nothing. A section that has lost
// its lock pauses until another one has written.
func TestUnguardedRace(t *testing.T) {
	t.Parallel()
	r := newRace(t)
	r.Section = func(ctx context.Context, held *lock.Held, lose func() bool) error {
		read := func() (n int, err error) {
			err = r.Env.DB.QueryRow("SELECT n FROM counters WHERE name = ?", held.Name()).Scan(&n)
			return n, err
		}
		n, err := read()
		if err != nil {
			return err
		}
		if lose() {
			// after the last section no other client comes
			for began := time.Now(); time.Since(began) < time.Second; {
				if now, err := read(); err != nil || now != n {
					break
				}
			}
		}
		_, err = r.Env.DB.Exec("UPDATE counters SET n = ? WHERE name = ?", n+1, held.Name())
		return err
	}
	r.Run(12, 5)
	if n := r.Missing(); n == 0 {
		t.Error("no update is lost")
	}
}
