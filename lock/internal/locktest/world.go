// Package locktest has what the tests of package lock and the tests of its backends share. Only
// tests import it.
package locktest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/unstale/unstale/internal/storetest/schematest"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/lock"
)

const (
	// Long is a TTL so long that no test sees an extension, even on a busy machine.
	Long = 10 * time.Minute
	// Short is one that tests wait for.
	Short = 3 * time.Second
	// Patient is a Timeout that a busy machine does not reach.
	Patient = 10 * time.Second
)

// Main runs the tests of a package. In a process that [World.StartHolder] has started, it holds a
// lock instead: config returns a Config for the place that World.Place has named.
func Main(m *testing.M, config func(place string) lock.Config) {
	_ = mysql.SetLogger(&mysql.NopLogger{}) // it refuses none but nil
	if name := os.Getenv(holderVariable); name != "" {
		if err := holdOnOrder(name, config); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	testenv.Main(m)
}

// Must fails the test on an error.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// WantError fails the test unless err wraps all of them.
func WantError(t testing.TB, what string, err error, wanted ...error) {
	t.Helper()
	for _, want := range wanted {
		if !errors.Is(err, want) {
			t.Errorf("%s: %v, wanted %v", what, err, want)
		}
	}
}

// A World is a backend and, if asked for, a database with the tables, of one test's own.
type World struct {
	testing.TB
	Backend  lock.Backend
	Place    string        // tells another process where the locks are
	Patience time.Duration // the longest default of Config.Timeout. Zero: Patient
	Env      *testenv.Database
}

// AddMySQL adds a database with a counter of each name.
func (w *World) AddMySQL(names ...string) {
	w.Helper()
	w.Env = testenv.MySQL(w.TB)
	schematest.Up(w, w.Env.DB)
	w.SQL("CREATE TABLE counters (name VARCHAR(20) PRIMARY KEY, n INT NOT NULL) ENGINE=InnoDB")
	for _, name := range names {
		w.SQL("INSERT INTO counters VALUES (?, 0)", name)
	}
}

// SQL executes a statement.
func (w *World) SQL(query string, args ...any) {
	w.Helper()
	_, err := w.Env.DB.ExecContext(w.Context(), query, args...)
	Must(w, err)
}

// Counter returns the value of a counter.
func (w *World) Counter(name string) (n int) {
	w.Helper()
	Must(w, w.Env.DB.QueryRowContext(w.Context(), "SELECT n FROM counters WHERE name = ?", name).Scan(&n))
	return n
}

// Locker makes a Locker that closes with the test. It replaces a nil Backend with w.Backend, and a
// zero TTL with Long.
func (w *World) Locker(config lock.Config) *lock.Locker {
	w.Helper()
	if config.Backend == nil {
		config.Backend = w.Backend
	}
	if config.TTL == 0 {
		config.TTL = Long
	}
	if config.MintWait == 0 {
		config.MintWait = 30 * time.Second
	}
	if config.Timeout == 0 {
		config.Timeout = min(max(Patient, w.Patience), config.TTL/3)
	}
	if w.Env != nil && config.MySQL == nil {
		dsn, err := mysql.ParseDSN(w.Env.DSN)
		Must(w, err)
		config.MySQL = dsn
	}
	l, err := lock.New(config)
	Must(w, err)
	w.Cleanup(func() { Must(w, l.Close()) })
	return l
}

// Acquire acquires a lock that is released with the test.
func (w *World) Acquire(l *lock.Locker, name string) *lock.Held {
	w.Helper()
	held, err := l.Acquire(w.Context(), name)
	Must(w, err)
	w.Cleanup(func() { _ = held.Release() })
	return held
}

// Add reads the counter, and writes one more: the section of most tests.
func Add(ctx context.Context, tx *sql.Tx, name string) error {
	var n int
	if err := tx.QueryRowContext(ctx, "SELECT n FROM counters WHERE name = ?", name).Scan(&n); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, "UPDATE counters SET n = ? WHERE name = ?", n+1, name)
	return err
}
