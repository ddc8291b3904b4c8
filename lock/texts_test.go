package lock_test

import (
	"context"
	"database/sql"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/unstale/unstale/internal/storetest/schematest"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/lock"
)

// wantText fails unless the text of err has all of them.
func wantText(t *testing.T, what string, err error, wanted ...string) {
	t.Helper()
	for _, want := range wanted {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, wanted %q", what, err, want)
		}
	}
}

// Acquire waits for a Redis at its maxmemory like for an unavailable one.
func TestFullRedis(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l := w.Locker(lock.Config{})
	must(t, w.Acquire(l, "a").Release())
	must(t, w.redis.ConfigSet(t.Context(), "maxmemory", "1").Err())
	_, err := l.TryAcquire(t.Context(), "a")
	wantText(t, "an attempt", err, "OOM")
	done := make(chan error, 1)
	go func() {
		held, err := l.Acquire(t.Context(), "a")
		if err == nil {
			err = held.Release()
		}
		done <- err
	}()
	testenv.Eventually(t, "another attempt", func() bool { return l.Statistics().Retries > 1 })
	must(t, w.redis.ConfigSet(t.Context(), "maxmemory", "0").Err())
	must(t, <-done)
}

// A pool that leads to another database than Config.MySQL, or to none, is told so.
func TestOtherDatabase(t *testing.T) {
	t.Parallel()
	w := withMySQL(t, "a")
	other := testenv.MySQL(t)
	schematest.Up(t, other.DB)
	l := w.Locker(lock.Config{})
	held := w.Acquire(l, "a")
	nothing := func(*sql.Tx) error { return nil }
	dsn, err := mysql.ParseDSN(w.Env.DSN)
	must(t, err)
	dsn.DBName = ""
	none, err := sql.Open("mysql", dsn.FormatDSN())
	must(t, err)
	defer none.Close()
	wantText(t, "a pool without a database", held.InTx(t.Context(), none, nothing),
		"1046", "; name in the DSN of the pool the database that lock.Config.MySQL names")
	err = held.InTx(t.Context(), other.DB, nothing)
	wantError(t, "a pool of another database", err, lock.ErrLost)
	wantText(t, "a pool of another database", err, "the pool must lead to the database that lock.Config.MySQL names")
	_, err = w.Locker(lock.Config{MySQL: dsn}).TryAcquire(t.Context(), "b")
	wantText(t, "a mint without a database", err, "1046", "; name in lock.Config.MySQL (DBName) the database that sections change")
}

// Lockers of one database guard the same rows, with any prefixes.
func TestPrefixesShareRows(t *testing.T) {
	t.Parallel()
	w := withMySQL(t, "a")
	first := w.Acquire(w.Locker(lock.Config{}), "a")
	w.Acquire(w.Locker(lock.Config{Backend: lock.Redis{Client: w.redis, Prefix: "other:"}}), "a")
	err := first.InTx(t.Context(), w.Env.DB, func(*sql.Tx) error { return nil })
	wantError(t, "the earlier holder", err, lock.ErrLost)
	wantText(t, "the earlier holder", err, "a later holder, possibly with another Prefix or Root")
}

// A caller whose deadline is too near does not get the clock of the server.
func TestNearDeadline(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l := w.Locker(lock.Config{})
	must(t, w.Acquire(l, "a").Release())
	for range 100 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		held, err := l.Acquire(ctx, "a")
		cancel()
		if err == nil {
			must(t, held.Release())
			continue
		}
		wantError(t, "an acquisition", err, context.DeadlineExceeded)
		if strings.Contains(err.Error(), "clock") {
			t.Fatal(err)
		}
	}
}

// Refusals name what is wrong with a statement.
func TestRefusals(t *testing.T) {
	t.Parallel()
	wantText(t, "a comment", lock.CheckStatement("/*!50000 COMMIT */", ""), "a comment that MySQL executes, /*! ... */, is refused")
	wantText(t, "nothing", lock.CheckStatement(" ; ", ""), "an empty statement is refused")
	w := withMySQL(t, "a")
	w.SQL("CREATE PROCEDURE ends() COMMIT")
	held := w.Acquire(w.Locker(lock.Config{}), "a")
	err := held.InTx(t.Context(), w.Env.DB, func(tx *sql.Tx) error {
		_, err := tx.Exec("CALL ends()")
		return err
	})
	wantError(t, "a procedure", err, lock.ErrBroken)
	wantText(t, "a procedure", err, "such as CALL, has committed or rolled back; what it has committed stays, and all else is rolled back: Error 1305")
}
