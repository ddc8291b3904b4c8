package store_test

import (
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/internal/storetest"
	"github.com/unstale/unstale/internal/testenv"
)

const month = 30 * 24 * time.Hour

// lockRows inserts rows of locks with names of any bytes.
func lockRows(t testing.TB, env *testenv.Database, days int, names ...string) {
	t.Helper()
	for part := range slices.Chunk(names, 500) {
		var values []string
		for _, name := range part {
			values = append(values, fmt.Sprintf("(X'%x', X'00', UTC_TIMESTAMP(6) - INTERVAL %d DAY)", name, days))
		}
		if _, err := env.DB.Exec("INSERT INTO cache_outbox_locks (name, token, minted_at) VALUES " + strings.Join(values, ",")); err != nil {
			t.Fatal(err)
		}
	}
}

func namesOfLocks(t *testing.T, env *testenv.Database) (names []string) {
	t.Helper()
	rows, err := env.DB.Query("SELECT HEX(name) FROM cache_outbox_locks ORDER BY name")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			t.Fatal(err)
		}
		text, err := hex.DecodeString(name)
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, string(text))
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return names
}

// Old rows go, whatever bytes their names have, in steps that go on where the last one has stopped;
// young ones stay. The end of the walk is its beginning.
func TestExpireLocks(t *testing.T) {
	t.Parallel()
	env := storetest.Migrated(t)
	s := storetest.Open(t, env.DSN)
	young := []string{"\x00", "\"young\"", "young", strings.Repeat("\xff", 255)}
	old := []string{"\x00\x00", "'", "YOUNG", "old", strings.Repeat("\xff", 254)}
	for i := range 1300 {
		old = append(old, fmt.Sprintf("order:%04d", i))
	}
	lockRows(t, env, 29, young...)
	lockRows(t, env, 31, old...)
	var walk store.LockWalk
	// chunks of 500, two young ones in the first
	for step, want := range []int64{498, 500, 307, 0} {
		n, err := s.Locks.ExpireLocks(t.Context(), &walk, month, 1)
		if err != nil || n != want {
			t.Fatalf("step %d: %d rows, %v, wanted %d", step, n, err, want)
		}
	}
	if walk != (store.LockWalk{}) {
		t.Errorf("the walk is at %v", walk)
	}
	if left := namesOfLocks(t, env); !slices.Equal(left, young) {
		t.Errorf("%q are left", left)
	}
	lockRows(t, env, 31, old...)
	if n, err := s.Locks.ExpireLocks(t.Context(), &walk, month, 100_000); err != nil || int(n) != len(old) {
		t.Errorf("%d rows, %v", n, err)
	}
}

// A row that a section has locked stays, and nobody waits for it: neither for a young one nor for
// an old one.
func TestExpireLocksPassesOverLockedRows(t *testing.T) {
	t.Parallel()
	env := storetest.Migrated(t)
	s := storetest.OpenPatient(t, env.DSN, 10*time.Second)
	lockRows(t, env, 31, "held", "old")
	lockRows(t, env, 0, "young")
	tx, err := env.DB.BeginTx(context.WithoutCancel(t.Context()), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	for _, name := range []string{"held", "young"} { // as Guard does
		if _, err := tx.Exec("SELECT token FROM cache_outbox_locks WHERE name = ? FOR UPDATE", name); err != nil {
			t.Fatal(err)
		}
	}
	expire := func(want int64) {
		t.Helper()
		n, err := s.Locks.ExpireLocks(t.Context(), &store.LockWalk{}, month, 1000)
		if err != nil || n != want {
			t.Errorf("%d rows, %v, wanted %d", n, err, want)
		}
	}
	expire(1)
	if left := namesOfLocks(t, env); !slices.Equal(left, []string{"held", "young"}) {
		t.Errorf("%q are left", left)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	expire(1)
	if left := namesOfLocks(t, env); !slices.Equal(left, []string{"young"}) {
		t.Errorf("%q are left", left)
	}
}

// A row that was minted after it was read as old stays.
func TestExpireLocksLooksAgain(t *testing.T) {
	t.Parallel()
	env := storetest.Migrated(t)
	s := storetest.Open(t, env.DSN)
	lockRows(t, env, 31, "old")
	lockRows(t, env, 0, "minted")
	n, err := s.Locks.RemoveLocks(t.Context(), hex.EncodeToString([]byte("a")), hex.EncodeToString([]byte("z")), month)
	if left := namesOfLocks(t, env); err != nil || n != 1 || !slices.Equal(left, []string{"minted"}) {
		t.Errorf("%d rows, %v, %q are left", n, err, left)
	}
}

// A worker looks at that many rows each time.
func BenchmarkExpireLocks(b *testing.B) {
	env := storetest.Migrated(b)
	s := storetest.Open(b, env.DSN)
	var names []string
	for i := range 100_000 {
		names = append(names, fmt.Sprintf("order:%07d", i))
	}
	for name, days := range map[string]int{"young": 0, "old": 31} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				if _, err := env.DB.Exec("TRUNCATE cache_outbox_locks"); err != nil {
					b.Fatal(err)
				}
				lockRows(b, env, days, names...)
				b.StartTimer()
				if _, err := s.Locks.ExpireLocks(b.Context(), &store.LockWalk{}, month, len(names)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
