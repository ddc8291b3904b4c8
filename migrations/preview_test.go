package migrations_test

import (
	"database/sql"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/pressly/goose/v3"

	"github.com/unstale/unstale/internal/schema"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/migrations"
)

// The previews of an empty database are the migrations, and there is none after Up. Previews create
// nothing.
func TestPreviews(t *testing.T) {
	t.Parallel()
	ctx, db := t.Context(), testenv.MySQL(t).DB
	list, err := migrations.Previews(ctx, db)
	if err != nil {
		t.Fatal(err)
	}
	if n := countTables(t, db); n != 0 || len(list) != files {
		t.Fatalf("%d tables, %d previews", n, len(list))
	}
	var shown []string
	for _, p := range list {
		shown = append(shown, p.File)
		if p.SQL == "" || strings.Contains(p.SQL, "+goose") || strings.Contains(p.SQL, "DROP ") {
			t.Errorf("%s: %s", p.File, p.SQL)
		}
	}
	if _, err := migrationProvider(t, db).UpByOne(ctx); err != nil {
		t.Fatal(err)
	}
	later, err := migrations.Previews(ctx, db)
	if err != nil || !slices.Equal(later, list[1:]) {
		t.Errorf("after one file: %+v, %v", later, err)
	}
	if _, err := migrations.Up(ctx, db); err != nil {
		t.Fatal(err)
	}
	if list, err := migrations.Previews(ctx, db); err != nil || len(list) > 0 {
		t.Errorf("after up: %+v, %v", list, err)
	}
	if got := []string{shown[0], shown[len(shown)-1]}; got[0] != fmt.Sprintf("%05d_baseline.sql", schema.Baseline) || !strings.HasPrefix(got[1], fmt.Sprintf("%05d", schema.Version)) {
		t.Errorf("the order is %q", shown)
	}
}

// alters matches the statement of a file that changes a table.
var alters = regexp.MustCompile(`'(ALTER TABLE (\w+)\s(?:[^']|'')*)'\);`)

// grown are the tables that can have millions of rows.
var grown = []string{"cache_outbox", "cache_outbox_delayed", "cache_outbox_dead", "cache_outbox_journal", "cache_outbox_summaries", "cache_outbox_sweeps", "cache_outbox_audit", "cache_outbox_locks"}

// Each file that changes a table declares the table and the algorithm that the server takes: the
// server accepts the ALTER with that algorithm and, while it copies or builds an index, lets others
// write. MySQL refuses a cheaper algorithm. The time is declared for an INPLACE of a table that
// can have millions of rows; that of INSTANT does not depend on them.
func TestEachFileDeclaresItsLocks(t *testing.T) {
	t.Parallel()
	env := testenv.MySQL(t)
	ctx, db := t.Context(), env.DB
	list, err := migrations.Previews(ctx, db)
	if err != nil {
		t.Fatal(err)
	}
	var server string
	if err := db.QueryRow("SELECT VERSION()").Scan(&server); err != nil {
		t.Fatal(err)
	}
	if _, err := migrationProvider(t, db).GetDBVersion(ctx); err != nil { // creates the version table, which the baseline alters
		t.Fatal(err)
	}
	for _, p := range list {
		if found := alters.FindStringSubmatch(p.SQL); found != nil {
			ddl := strings.ReplaceAll(found[1], "''", "'")
			if p.Table != found[2] {
				t.Errorf("%s: wants the line \"-- Alters: %s, INSTANT.\" or INPLACE, and has the table %q", p.File, found[2], p.Table)
			}
			if p.Algorithm != "INSTANT" && p.Measured == "" && slices.Contains(grown, p.Table) {
				t.Errorf("%s: its table can have millions of rows; measure it by make bench-migrate, and add a line such as \"-- Ten million rows: 15 s.\"", p.File)
			}
			if better := map[string]string{"INPLACE": "INSTANT", "COPY": "INPLACE"}[p.Algorithm]; better != "" && !strings.Contains(server, "MariaDB") {
				if _, err := db.Exec(ddl + ", ALGORITHM=" + better); err == nil {
					t.Errorf("%s declares %s, and is %s", p.File, p.Algorithm, better)
				}
			}
			option := ", ALGORITHM=" + p.Algorithm
			if p.Algorithm == "INPLACE" {
				option += ", LOCK=NONE"
			}
			if _, err := db.Exec(ddl + option); err != nil {
				t.Errorf("%s%s: %v", p.File, option, err)
			}
		} else if strings.Contains(p.SQL, "ALTER") || p.Table != "" {
			t.Errorf("%s: no ALTER was found, and it declares %q", p.File, p.Table)
		}
		if _, err := migrationProvider(t, db).UpByOne(ctx); err != nil {
			t.Fatal(err)
		}
	}
}

// The header of a file has the table, the algorithm and the time, and the locks follow from them.
func TestPreviewOfAHeader(t *testing.T) {
	t.Parallel()
	for header, want := range map[string]struct{ table, algorithm, measured, locks string }{
		"-- Only a new table.\n":                                   {"", "", "", "no table that exists"},
		"-- Alters: cache_outbox, INSTANT.\n":                      {"cache_outbox", "INSTANT", "", "cache_outbox, exclusively for an instant: the ALTER waits for open transactions"},
		"-- Alters: some, INPLACE.\n-- Ten million rows: 15 s.\n":  {"some", "INPLACE", "15 s", "some, exclusively at the start and at the end: "},
		"-- Alters: some, COPY.\n-- Ten million rows: 36 s (a).\n": {"some", "COPY", "36 s (a)", "some, against writes, until its rows are copied"},
	} {
		p := migrations.PreviewOf("-- A change.\n--\n" + header + "\n-- +goose Up\nDO 0;\n\n-- +goose Down\nDO 1;\n")
		if p.Table != want.table || p.Algorithm != want.algorithm || p.Measured != want.measured || p.SQL != "DO 0;" || !strings.HasPrefix(p.Locks(), want.locks) {
			t.Errorf("%q: %+v, %s", header, p, p.Locks())
		}
	}
}

func migrationProvider(t *testing.T, db *sql.DB) *goose.Provider {
	t.Helper()
	p, err := migrations.Provider(db)
	if err != nil {
		t.Fatal(err)
	}
	return p
}
