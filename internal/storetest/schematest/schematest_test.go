package schematest

import (
	"database/sql"
	"slices"
	"strings"
	"testing"

	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/migrations"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// A database that gets the tables of another one differs from a migrated one in its source only.
func TestUp(t *testing.T) {
	t.Parallel()
	first, copied, migrated := testenv.MySQL(t).DB, testenv.MySQL(t).DB, testenv.MySQL(t).DB
	Up(t, first)
	Up(t, copied)
	if _, err := migrations.Up(t.Context(), migrated); err != nil {
		t.Fatal(err)
	}
	have, want := schemaOf(t, copied), schemaOf(t, migrated)
	if len(want.tables) < 10 || len(have.tables) != len(want.tables) {
		t.Fatalf("the copy has %d tables, and the migrated database %d", len(have.tables), len(want.tables))
	}
	for i, table := range want.tables {
		// MySQL names the character set of a column again that a statement has named.
		if copied := strings.ReplaceAll(have.tables[i], " CHARACTER SET utf8mb4", ""); copied != strings.ReplaceAll(table, " CHARACTER SET utf8mb4", "") {
			t.Errorf("the copy has\n%s\nand the migrated database\n%s", copied, table)
		}
	}
	if !slices.Equal(have.versions, want.versions) {
		t.Errorf("the copy has the versions %v, and the migrated database %v", have.versions, want.versions)
	}
	if err := migrations.Check(t.Context(), copied); err != nil {
		t.Error(err)
	}
	if done, err := migrations.Up(t.Context(), copied); err != nil || len(done) != 0 {
		t.Errorf("the copy still needed %d migrations: %v", len(done), err)
	}
	if a, b := source(t, copied), source(t, first); len(a) != 32 || a == b {
		t.Errorf("the sources are %q and %q", a, b)
	}
}

func schemaOf(t *testing.T, db *sql.DB) *schema {
	t.Helper()
	s, err := read(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func source(t *testing.T, db *sql.DB) (id string) {
	t.Helper()
	if err := db.QueryRowContext(t.Context(), "SELECT id FROM cache_outbox_source").Scan(&id); err != nil {
		t.Fatal(err)
	}
	return id
}
