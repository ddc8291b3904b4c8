package migrations_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/unstale/unstale/internal/schema"
	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/internal/storetest/schematest"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/migrations"
)

// stepped returns a database as the steps before the baseline left it.
func stepped(t *testing.T) *sql.DB {
	t.Helper()
	env := testenv.MySQL(t)
	file := "testdata/steps.mysql.sql"
	if env.Flavor == servers.KindMariaDB {
		file = "testdata/steps.mariadb.sql"
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for statement := range strings.SplitSeq(strings.TrimSpace(string(text)), ";\n") {
		if _, err := env.DB.Exec(statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	return env.DB
}

// atBaseline returns a database with the baseline and no later migration.
func atBaseline(t *testing.T) *testenv.Database {
	t.Helper()
	env := testenv.MySQL(t)
	if _, err := migrationProvider(t, env.DB).UpTo(t.Context(), schema.Baseline); err != nil {
		t.Fatal(err)
	}
	return env
}

func dump(t *testing.T, db *sql.DB) string {
	t.Helper()
	text, err := schematest.Dump(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// wantDump compares two dumps and reports the lines that only one has.
func wantDump(t *testing.T, got, want string) {
	t.Helper()
	a, b := strings.Split(got, "\n"), strings.Split(want, "\n")
	for _, line := range a {
		if !slices.Contains(b, line) {
			t.Errorf("only the first has %q", line)
		}
	}
	for _, line := range b {
		if !slices.Contains(a, line) {
			t.Errorf("only the second has %q", line)
		}
	}
	if got != want && !t.Failed() {
		t.Errorf("the order differs:\n%s\nand\n%s", got, want)
	}
}

// The baseline leaves what the steps before it left. The dump sees a difference.
func TestBaselineEqualsTheSteps(t *testing.T) {
	t.Parallel()
	steps, baseline := stepped(t), atBaseline(t).DB
	want := dump(t, steps)
	wantDump(t, dump(t, baseline), want)
	for _, ddl := range []string{
		"ALTER TABLE cache_outbox_sweeps MODIFY COLUMN hold_ms INT UNSIGNED NOT NULL DEFAULT 0 COMMENT 'seconds'",
		"ALTER TABLE cache_outbox_sweeps MODIFY COLUMN hold_ms INT UNSIGNED NOT NULL DEFAULT 0 COMMENT 'milliseconds' FIRST",
		"ALTER TABLE cache_outbox_journal ROW_FORMAT = COMPACT",
		"CREATE TRIGGER one BEFORE INSERT ON cache_outbox FOR EACH ROW SET NEW.trace = ''",
	} {
		before := dump(t, baseline)
		if _, err := baseline.Exec(ddl); err != nil {
			t.Fatalf("%s: %v", ddl, err)
		}
		if dump(t, baseline) == before {
			t.Errorf("the dump does not have: %s", ddl)
		}
	}
}

// A database that took the steps before the baseline has only later steps to take. Its step back
// over the baseline is whole.
func TestUpAfterTheSteps(t *testing.T) {
	t.Parallel()
	ctx, db := t.Context(), stepped(t)
	want := testenv.MySQL(t).DB
	if _, err := migrations.Up(ctx, want); err != nil {
		t.Fatal(err)
	}
	done, err := migrations.Up(ctx, db)
	if err != nil || len(done) != files-1 {
		t.Fatalf("applied %d, %v", len(done), err)
	}
	wantDump(t, dump(t, db), dump(t, want))
	for range files {
		if _, err := migrations.Down(ctx, db, false); err != nil {
			t.Fatal(err)
		}
	}
	var versions string
	if err := db.QueryRow("SELECT GROUP_CONCAT(version_id) FROM " + migrations.VersionTable).Scan(&versions); err != nil || versions != "0" || countTables(t, db) != 0 {
		t.Errorf("after down: versions %s, %d tables, %v", versions, countTables(t, db), err)
	}
	if done, err = migrations.Up(ctx, db); err != nil || len(done) != files {
		t.Errorf("again: applied %d, %v", len(done), err)
	}
	wantDump(t, dump(t, db), dump(t, want))
}

// A schema that is older than the baseline is refused and left alone, also after an interrupted
// step. The error has the version, the commit and the commands.
func TestAnOlderSchema(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		statements []string
		has        string
	}{
		"the first step": {[]string{"DELETE FROM cache_outbox_version WHERE version_id > 1"}, "version 1"},
		"the middle":     {[]string{"DELETE FROM cache_outbox_version WHERE version_id > 20"}, "version 20"},
		"before oldest":  {[]string{"DELETE FROM cache_outbox_version WHERE version_id > 20", "ALTER TABLE cache_outbox_version DROP COLUMN oldest"}, "version 20"},
		"the last step":  {[]string{"DELETE FROM cache_outbox_version WHERE version_id > 31"}, "version 31"},
		"an interrupted first step": {[]string{
			"DROP TABLE cache_outbox_delayed", "ALTER TABLE cache_outbox MODIFY COLUMN trace VARCHAR(129) NOT NULL DEFAULT ''",
			"DELETE FROM cache_outbox_version WHERE version_id > 0",
		}, "version 0 and a table of version 1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, db := t.Context(), stepped(t)
			for _, statement := range c.statements {
				if _, err := db.Exec(statement); err != nil {
					t.Fatal(err)
				}
			}
			tables := countTables(t, db)
			want := fmt.Sprintf("schema does not match this binary: it has %s, this binary needs %d; only commit %s has the steps between; with MYSQL_DSN set, run: git clone ",
				c.has, schema.Version, schema.Steps)
			asks := map[string]func(context.Context, *sql.DB) error{
				"up":      func(ctx context.Context, db *sql.DB) error { _, err := migrations.Up(ctx, db); return err },
				"preview": func(ctx context.Context, db *sql.DB) error { _, err := migrations.Previews(ctx, db); return err },
				"status":  func(ctx context.Context, db *sql.DB) error { _, err := migrations.Status(ctx, db); return err },
			}
			if c.has != "version 0 and a table of version 1" {
				asks["check"] = migrations.Check
				asks["down"] = func(ctx context.Context, db *sql.DB) error { _, err := migrations.Down(ctx, db, true); return err }
			} else if err := migrations.Check(ctx, db); !errors.Is(err, migrations.ErrSchema) || !strings.HasSuffix(err.Error(), "run `unstale migrate up`") {
				t.Errorf("check: %v", err) // which then has the rest
			}
			for name, ask := range asks {
				if err := ask(ctx, db); !errors.Is(err, migrations.ErrSchema) || !errors.Is(err, schema.ErrOlder) || !strings.Contains(err.Error(), want) ||
					!strings.HasSuffix(err.Error(), " migrate up") {
					t.Errorf("%s: %v, wanted %q", name, err, want)
				}
			}
			if n := countTables(t, db); n != tables {
				t.Errorf("%d tables were %d", n, tables)
			}
		})
	}
}

// A baseline that was interrupted, by its end or by the end of its process, is finished by another
// run.
func TestUpAfterAnInterruptedBaseline(t *testing.T) {
	t.Parallel()
	ctx, db := t.Context(), atBaseline(t).DB
	want := dump(t, db)
	for _, undo := range [][]string{
		{"DROP TABLE cache_outbox_source, cache_outbox_locks, cache_outbox_workers", "ALTER TABLE cache_outbox_version DROP COLUMN oldest"},
		{"DELETE FROM cache_outbox_source", "ALTER TABLE cache_outbox_version DROP COLUMN oldest"},
		{"ALTER TABLE cache_outbox_version DROP COLUMN oldest"},
		{}, // goose did not write the version
	} {
		for _, statement := range append(undo, "DELETE FROM cache_outbox_version WHERE version_id > 0") {
			if _, err := db.Exec(statement); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := migrationProvider(t, db).UpTo(ctx, schema.Baseline); err != nil {
			t.Fatal(err)
		}
		wantDump(t, dump(t, db), want)
	}
	if _, err := migrations.Up(ctx, db); err != nil {
		t.Error(err)
	}
}
