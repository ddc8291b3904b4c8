package lock_test

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/unstale/unstale/lock"
)

// A race is many sections that each add one to a counter, while the locks go lost.
type race struct {
	*world
	names   []string
	lockers []*lock.Locker
	lose    func(name string) bool // takes a lock from its holder
	section func(ctx context.Context, held *lock.Held, lose func() bool) error
	done    map[string]*atomic.Int64 // sections that were told to be kept
	lost    atomic.Int64             // of the others
}

func newRace(t *testing.T) *race {
	w := newWorld(t)
	return raceIn(w, func(name string) bool { return w.redis.Del(t.Context(), "lock:{"+name+"}").Val() == 1 })
}

func raceIn(w *world, lose func(name string) bool) *race {
	r := &race{world: w, names: []string{"a", "b", "c"}, lose: lose, done: map[string]*atomic.Int64{}}
	r.addMySQL(r.names...)
	for _, name := range r.names {
		r.done[name] = &atomic.Int64{}
	}
	for range 3 { // processes
		r.lockers = append(r.lockers, r.locker(lock.Config{}))
	}
	return r
}

// run has each worker do its sections. Every third one loses its lock on the way, as a failover of Redis or an expired session would make it.
func (r *race) run(workers, sections int) {
	var group sync.WaitGroup
	for worker := range workers {
		group.Go(func() {
			for i := range sections {
				name := r.names[(worker+i)%len(r.names)]
				lose := func() bool { return false }
				if (worker+i/len(r.names))%3 == 0 {
					lose = func() bool { return r.lose(name) }
				}
				if err := r.one(r.lockers[worker%len(r.lockers)], name, lose); err != nil {
					r.Errorf("section: %v", err)
					return
				}
			}
		})
	}
	group.Wait()
}

// one is a section, tried again when its lock was lost before it could write.
func (r *race) one(l *lock.Locker, name string, lose func() bool) error {
	for {
		kept := false
		err := l.Do(r.Context(), name, func(ctx context.Context, held *lock.Held) error {
			err := r.section(ctx, held, lose)
			kept = err == nil
			return err
		})
		switch {
		case kept:
			r.done[name].Add(1)
			return nil
		case !errors.Is(err, lock.ErrLost):
			return err
		}
		r.lost.Add(1)
		lose = func() bool { return false }
	}
}

// missing is how many sections the counters lack.
func (r *race) missing() (n int) {
	r.Helper()
	for _, name := range r.names {
		n += int(r.done[name].Load()) - r.counter(name)
	}
	return n
}

// Sentence 1: guarded sections lose no update, though their locks are lost, before the transaction and in it.
func TestGuardedRace(t *testing.T) {
	t.Parallel()
	newRace(t).guarded()
}

func (r *race) guarded() {
	r.Helper()
	var turn atomic.Int64
	r.section = func(ctx context.Context, held *lock.Held, lose func() bool) error {
		within := turn.Add(1)%2 == 0
		if !within {
			lose()
		}
		return held.InTx(ctx, r.env.DB, func(tx *sql.Tx) error {
			var n int
			if err := tx.QueryRowContext(ctx, "SELECT n FROM counters WHERE name = ?", held.Name()).Scan(&n); err != nil {
				return err
			}
			if within {
				lose()
			}
			_, err := tx.ExecContext(ctx, "UPDATE counters SET n = ? WHERE name = ?", n+1, held.Name())
			return err
		})
	}
	r.run(12, 20)
	if n := r.missing(); n != 0 {
		r.Errorf("%d updates are lost", n)
	}
	r.Logf("%d sections were refused and tried again", r.lost.Load())
}

// The same sections without Guard lose some, or the race above shows nothing. One that has lost its lock pauses until somebody
// else has written.
func TestUnguardedRace(t *testing.T) {
	t.Parallel()
	r := newRace(t)
	r.section = func(ctx context.Context, held *lock.Held, lose func() bool) error {
		read := func() (n int, err error) {
			err = r.env.DB.QueryRow("SELECT n FROM counters WHERE name = ?", held.Name()).Scan(&n)
			return n, err
		}
		n, err := read()
		if err != nil {
			return err
		}
		if lose() {
			for began := time.Now(); time.Since(began) < time.Second; { // nobody comes after the last section
				if now, err := read(); err != nil || now != n {
					break
				}
			}
		}
		_, err = r.env.DB.Exec("UPDATE counters SET n = ? WHERE name = ?", n+1, held.Name())
		return err
	}
	r.run(12, 5)
	if n := r.missing(); n == 0 {
		t.Error("no update is lost")
	}
}
