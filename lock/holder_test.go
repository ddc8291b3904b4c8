package lock_test

import (
	"database/sql"
	"testing"

	"github.com/unstale/unstale/lock"
)

// A process that was frozen beyond its lease is refused by its own clock, before it asks MySQL.
func TestFrozenHolder(t *testing.T) {
	t.Parallel()
	withMySQL(t, "a").OutliveFrozenHolder()
}

// A process that is frozen in its transaction keeps others out until the server ends its session,
// soon after its lease, and commits nothing afterwards.
func TestFrozenInTransaction(t *testing.T) {
	t.Parallel()
	w := withMySQL(t, "a")
	h := w.StartHolder()
	h.Order("pause")
	h.WantSaid("paused")
	h.Freeze()
	held := w.Acquire(w.Locker(lock.Config{}), "a") // its mint waits
	must(t, held.InTx(t.Context(), w.Env.DB, func(tx *sql.Tx) error { return add(t.Context(), tx, "a") }))
	must(t, held.Release())
	h.Order("go on")
	h.Thaw()
	h.WantSaid("lost true, asked 1")
	if n := w.Counter("a"); n != 1 {
		t.Errorf("the counter is %d", n)
	}
}
