package lock_test

import (
	"database/sql"
	"errors"
	"regexp"
	"testing"

	"github.com/unstale/unstale/lock"
)

// What the page says about old rows removes these and no others; a lock that was held all the while is refused, and a new
// acquisition is not.
func TestOldRows(t *testing.T) {
	t.Parallel()
	remove := regexp.MustCompile(`(?m)^DELETE FROM cache_outbox_locks .*;$`).FindString(page(t, "locks.md"))
	w := withMySQL(t, "old", "young")
	l := w.locker(lock.Config{})
	old, young := w.acquire(l, "old"), w.acquire(l, "young")
	w.sql("UPDATE cache_outbox_locks SET minted_at = minted_at - INTERVAL 31 DAY WHERE name = 'old'")
	w.sql(remove)
	section := func(held *lock.Held) error {
		return held.InTx(t.Context(), w.quick("600"), func(*sql.Tx) error { return nil })
	}
	if err := section(old); !errors.Is(err, lock.ErrLost) {
		t.Errorf("the old one: %v", err)
	}
	must(t, section(young))
	if err := old.Release(); !errors.Is(err, lock.ErrLost) {
		t.Errorf("its release: %v", err)
	}
	must(t, section(w.acquire(l, "old")))
}
