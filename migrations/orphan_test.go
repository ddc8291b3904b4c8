package migrations_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/pressly/goose/v3"

	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/migrations"
)

// The ALTER of a process that was killed is finished by the server. Who comes next sees a table
// without the column, waits behind the orphan, and must not fail over what that has made.
func TestUpBehindAnOrphan(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	env, holder := heldBack(t)
	db := env.DB
	orphan, ours := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := db.Exec(stepSQL)
		orphan <- err
	}()
	testenv.Eventually(t, "the orphan waits", func() bool { return waiting(t, db) == 1 })
	go func() {
		_, err := migrations.Up(ctx, db, laterSteps(t))
		ours <- err
	}()
	testenv.Eventually(t, "the next one waits behind it", func() bool { return waiting(t, db) == 2 })
	if err := holder.Commit(); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(<-orphan, <-ours); err != nil {
		t.Error(err)
	}
	if err := migrations.Check(ctx, db); err != nil {
		t.Error(err)
	}
}

// waiting counts the statements of this database that wait for a table's metadata lock.
func waiting(t *testing.T, db *sql.DB) (n int) {
	t.Helper()
	err := db.QueryRow("SELECT COUNT(*) FROM information_schema.processlist WHERE db = DATABASE() AND state LIKE 'Waiting for table metadata lock%'").Scan(&n)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// A signal lets the current step end and begins no other. The error says how far it came.
func TestUpIsInterrupted(t *testing.T) {
	t.Parallel()
	env, holder := heldBack(t)
	db := env.DB
	ctx, cancel := context.WithCancel(t.Context())
	type outcome struct {
		steps int
		err   error
	}
	over := make(chan outcome, 1)
	go func() {
		done, err := migrations.Up(ctx, db, laterSteps(t))
		over <- outcome{len(done), err}
	}()
	testenv.Eventually(t, "a step waits", func() bool { return waiting(t, db) == 1 })
	cancel()
	if err := holder.Commit(); err != nil {
		t.Fatal(err)
	}
	got := <-over
	if got.steps != 1 || !errors.Is(got.err, context.Canceled) ||
		!strings.Contains(got.err.Error(), "interrupted after 00033_column.sql, which is applied whole; run it again for the steps up to 00034_table.sql") {
		t.Errorf("%d steps, %v", got.steps, got.err)
	}
	if done, err := migrations.Up(t.Context(), db, laterSteps(t)); err != nil || len(done) != 1 {
		t.Errorf("again: %d steps, %v", len(done), err)
	}
}

// An account that may not read the version is told so, instead of that the schema is empty.
func TestCheckWithoutTheRightToRead(t *testing.T) {
	t.Parallel()
	ctx, own := context.Background(), testenv.OwnMySQL(t) // accounts belong to the whole server
	admin := testenv.OpenDB(t, own.DSN(""))
	exec := func(statements ...string) {
		t.Helper()
		for _, s := range statements {
			if _, err := admin.Exec(s); err != nil {
				t.Fatal(err)
			}
		}
	}
	exec("CREATE DATABASE shop")
	if _, err := migrations.Up(ctx, testenv.OpenDB(t, own.DSN("shop"))); err != nil {
		t.Fatal(err)
	}
	exec("CREATE USER 'shop'@'%' IDENTIFIED BY 'secret'", "GRANT INSERT ON shop.cache_outbox TO 'shop'@'%'")
	cfg, err := mysql.ParseDSN(own.DSN("shop"))
	if err != nil {
		t.Fatal(err)
	}
	cfg.User, cfg.Passwd = "shop", "secret"
	for name, ask := range map[string]func(*sql.DB) error{
		"check":  func(db *sql.DB) error { return migrations.Check(ctx, db) },
		"status": func(db *sql.DB) error { _, err := migrations.Status(ctx, db); return err },
	} {
		err := ask(testenv.OpenDB(t, cfg.FormatDSN()))
		if err == nil || errors.Is(err, migrations.ErrSchema) || !strings.Contains(err.Error(), "GRANT SELECT ON cache_outbox_version to this account") {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// To ask for the status changes nothing: a database without the tables has none afterwards either.
func TestStatusMakesNothing(t *testing.T) {
	t.Parallel()
	ctx, db := context.Background(), testenv.MySQL(t).DB
	applied := func() (n int) {
		t.Helper()
		list, err := migrations.Status(ctx, db)
		if err != nil || len(list) != files {
			t.Fatalf("%d migrations, %v", len(list), err)
		}
		for _, s := range list {
			if s.State == goose.StateApplied && !s.AppliedAt.IsZero() {
				n++
			}
		}
		return n
	}
	if n := applied(); n != 0 {
		t.Errorf("%d are applied in an empty database", n)
	}
	var tables int
	if err := db.QueryRow("SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE()").Scan(&tables); err != nil || tables != 0 {
		t.Errorf("%d tables, %v", tables, err)
	}
	if _, err := migrations.Up(ctx, db); err != nil {
		t.Fatal(err)
	}
	if _, err := migrations.Down(ctx, db, false); err != nil {
		t.Fatal(err)
	}
	if n := applied(); n != files-1 {
		t.Errorf("%d are applied, wanted %d", n, files-1)
	}
}
