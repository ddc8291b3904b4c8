package servers_test

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/internal/testenv"
)

func startMySQL(t *testing.T, o servers.MySQLOptions) *servers.MySQL {
	t.Helper()
	if o.Flavor == "" {
		o.Flavor = flavor()
	}
	m, err := servers.StartMySQL(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

func text(t *testing.T, db *sql.DB, query string) string {
	t.Helper()
	var s string
	if err := db.QueryRowContext(t.Context(), query).Scan(&s); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestMySQLAnswersOverSocketAndTCP(t *testing.T) {
	t.Parallel()
	m := startMySQL(t, servers.MySQLOptions{})
	for _, dsn := range []string{m.DSN(""), m.TCPDSN("")} {
		db := testenv.OpenDB(t, dsn)
		if got := text(t, db, "SELECT VERSION()"); got != m.Version() {
			t.Errorf("VERSION() = %q, Version() = %q", got, m.Version())
		}
		if got := text(t, db, "SELECT @@time_zone"); got != "+00:00" {
			t.Errorf("time zone is %q, want +00:00", got)
		}
		if _, err := db.ExecContext(t.Context(), "SET GLOBAL innodb_lock_wait_timeout = 50"); err != nil {
			t.Errorf("root lacks privileges: %v", err)
		}
	}
	var now time.Time
	if err := testenv.OpenDB(t, m.DSN("")).QueryRowContext(t.Context(), "SELECT NOW(6)").Scan(&now); err != nil || now.Location() != time.UTC {
		t.Errorf("NOW() = %v, %v, want a time in UTC", now, err)
	}
}

func TestMySQLIsDurableUnlessToldOtherwise(t *testing.T) {
	t.Parallel()
	db := testenv.OpenDB(t, startMySQL(t, servers.MySQLOptions{}).DSN(""))
	if got := text(t, db, "SELECT @@innodb_flush_log_at_trx_commit"); got != "1" {
		t.Errorf("innodb_flush_log_at_trx_commit = %s, want 1", got)
	}
	db = testenv.OpenDB(t, startMySQL(t, servers.MySQLOptions{Args: []string{"--innodb-flush-log-at-trx-commit=0"}}).DSN(""))
	if got := text(t, db, "SELECT @@innodb_flush_log_at_trx_commit"); got != "0" {
		t.Errorf("innodb_flush_log_at_trx_commit = %s in spite of Args, want 0", got)
	}
}

func TestMySQLRestartKeepsCommittedRowsAndPort(t *testing.T) {
	t.Parallel()
	m := startMySQL(t, servers.MySQLOptions{})
	addr := m.Addr()
	db := testenv.OpenDB(t, m.TCPDSN(""))
	for _, statement := range []string{"CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY)"} {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	ends := []func() error{m.Kill, func() error { return m.Stop(t.Context()) }, func() error { return nil }}
	for i, end := range ends {
		if _, err := db.ExecContext(t.Context(), "INSERT INTO d.t VALUES (?)", i); err != nil {
			t.Fatal(err)
		}
		pid := m.Pid()
		if err := end(); err != nil {
			t.Fatal(err)
		}
		if err := m.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		if m.Addr() != addr || m.Pid() == pid {
			t.Fatalf("address %s, process %d after Restart, want %s and another process", m.Addr(), m.Pid(), addr)
		}
		var n int
		if err := testenv.OpenDB(t, m.TCPDSN("d")).QueryRowContext(t.Context(), "SELECT COUNT(*) FROM t").Scan(&n); err != nil || n != i+1 {
			t.Fatalf("%d rows after Restart, %v, want %d", n, err, i+1)
		}
		db = testenv.OpenDB(t, m.TCPDSN("d"))
	}
}

func TestMySQLPauseFreezesAndResumeThaws(t *testing.T) {
	t.Parallel()
	m := startMySQL(t, servers.MySQLOptions{})
	db := testenv.OpenDB(t, m.TCPDSN(""))
	if err := m.Pause(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := db.PingContext(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("ping of a paused server = %v, want %v", err, context.DeadlineExceeded)
	}
	if err := m.Resume(); err != nil {
		t.Fatal(err)
	}
	if err := db.PingContext(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestMySQLThatDiesAtStartShowsItsLog(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	_, err := servers.StartMySQL(t.Context(), servers.MySQLOptions{Flavor: flavor(), Dir: dir, Args: []string{"--no-such-option"}})
	if err == nil || !strings.Contains(err.Error(), "no-such-option") {
		t.Fatalf("StartMySQL = %v, want what the server printed", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Fatalf("left behind: %v, %v", left, err)
	}
}

func TestMySQLRefusesUnknownFlavor(t *testing.T) {
	t.Parallel()
	_, err := servers.StartMySQL(t.Context(), servers.MySQLOptions{Flavor: "postgres"})
	if err == nil || err.Error() != `find a database: flavor "postgres" is neither "mysql" nor "mariadb"` {
		t.Fatalf("StartMySQL = %v", err)
	}
}
