package migrations_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/migrations"
)

// A step back refuses while tables that it drops have rows, drops none, and its error has the fix for
// each of them. Rows that workers make for themselves do not count: without the others it continues.
func TestDownSaysWhatToDoWithRows(t *testing.T) {
	t.Parallel()
	const (
		orForce = ", or use --force"
		byWork  = "let a worker empty it first" + orForce
		history = "workers keep it for `unstale history` and `unstale replay`: use --force if you need neither"
	)
	left := map[string]string{
		"cache_outbox": byWork, "cache_outbox_delayed": byWork, "cache_outbox_sweeps": byWork,
		"cache_outbox_dead":    "retry or discard its rows by `unstale dead` first" + orForce,
		"cache_outbox_control": "end the pause by `unstale resume` first" + orForce,
		"cache_outbox_audit":   "no worker empties the record of what operators did: copy it if you need it, and use --force",
		"cache_outbox_locks":   "applications hold locks by it: stop them, and use --force",
		"cache_outbox_journal": history,
		"cache_outbox_stale":   "it has the stale entries that spot checks found: use --force if you do not need them",
		"cache_outbox_shadow":  "it has the differences that shadow reads found: use --force if you do not need them",
		"cache_outbox_minutes": "it has the figures of 30 days that `unstale status` shows: use --force if you do not need them",
	}
	db := testenv.MySQL(t).DB
	if _, err := migrations.Up(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	exec := func(stmt string) {
		t.Helper()
		if _, err := conn.ExecContext(t.Context(), stmt); err != nil {
			t.Fatal(err)
		}
	}
	exec("SET SESSION sql_mode = ''") // columns without a default take an empty value
	for table := range left {
		exec("INSERT INTO " + table + " () VALUES ()")
	}
	exec("INSERT INTO cache_outbox_summaries () VALUES ()")
	exec("INSERT INTO cache_outbox_workers () VALUES ()")
	exec("INSERT INTO cache_outbox_sweeper (name, worker) VALUES ('lead', '')") // by the first sweep, for good
	for range files - 1 {
		if _, err := migrations.Down(t.Context(), db, true); err != nil {
			t.Fatal(err)
		}
	}
	for len(left) > 0 {
		_, err := migrations.Down(t.Context(), db, false)
		if !errors.Is(err, migrations.ErrRows) || countTables(t, db) != len(tables) {
			t.Fatalf("%d tables, %v", countTables(t, db), err)
		}
		lines := strings.Split(strings.TrimPrefix(err.Error(), "migrate down: "), "\n")
		if len(lines) != len(left) {
			t.Errorf("%d tables have rows: %v", len(left), err)
		}
		for _, line := range lines {
			table, text, _ := strings.Cut(strings.TrimPrefix(line, "table "), " ")
			if left[table] == "" || text != "has rows, which would be lost; "+left[table] {
				t.Fatalf("%q", line)
			}
		}
		table, _, _ := strings.Cut(strings.TrimPrefix(lines[0], "table "), " ")
		exec("DELETE FROM " + table)
		delete(left, table)
	}
	if _, err := migrations.Down(t.Context(), db, false); err != nil || countTables(t, db) != 0 {
		t.Error(err)
	}
}
