package locktest

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/unstale/unstale/lock"
)

// A Race is many sections that each add one to a counter, while the locks go lost.
type Race struct {
	*World
	Section func(ctx context.Context, held *lock.Held, lose func() bool) error

	names   []string
	lockers []*lock.Locker
	lose    func(name string) bool   // takes a lock from its holder
	done    map[string]*atomic.Int64 // sections that were told to be kept
	lost    atomic.Int64             // of the others
}

// NewRace returns a Race of three processes. lose takes a lock from its holder, and reports whether
// it has.
func NewRace(w *World, lose func(name string) bool) *Race {
	r := &Race{World: w, names: []string{"a", "b", "c"}, lose: lose, done: map[string]*atomic.Int64{}}
	r.AddMySQL(r.names...)
	for _, name := range r.names {
		r.done[name] = &atomic.Int64{}
	}
	for range 3 { // processes
		r.lockers = append(r.lockers, r.Locker(lock.Config{}))
	}
	return r
}

// Run has each worker do its sections. Every third one loses its lock on the way, as a failover of
// Redis or an expired session would make it.
func (r *Race) Run(workers, sections int) {
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
func (r *Race) one(l *lock.Locker, name string, lose func() bool) error {
	for {
		kept := false
		err := l.Do(r.Context(), name, func(ctx context.Context, held *lock.Held) error {
			err := r.Section(ctx, held, lose)
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

// Missing returns how many sections the counters lack.
func (r *Race) Missing() (n int) {
	r.Helper()
	for _, name := range r.names {
		n += int(r.done[name].Load()) - r.Counter(name)
	}
	return n
}

// Guarded fails the test if guarded sections lose an update, though their locks are lost, before
// the transaction and in it.
func (r *Race) Guarded() {
	r.Helper()
	var turn atomic.Int64
	r.Section = func(ctx context.Context, held *lock.Held, lose func() bool) error {
		within := turn.Add(1)%2 == 0
		if !within {
			lose()
		}
		return held.InTx(ctx, r.Env.DB, func(tx *sql.Tx) error {
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
	r.Run(12, 20)
	if n := r.Missing(); n != 0 {
		r.Errorf("%d updates are lost", n)
	}
	r.Logf("%d sections were refused and tried again", r.lost.Load())
}
