package main

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/unstale/unstale/internal/dberr"
	"github.com/unstale/unstale/internal/schema"
	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/internal/storetest/schematest"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/migrations"
)

// The previous release runs its commands on a schema of a later release that lets it run. "migrate
// up" of an init container has nothing to do. "migrate down" leaves the step to the binary that has
// it.
func TestMigrateOfANewerSchema(t *testing.T) {
	t.Parallel()
	env := testenv.MySQL(t)
	vars := map[string]string{"MYSQL_DSN": env.DSN}
	want := func(code int, text string, args ...string) {
		t.Helper()
		if r := call(t, vars, args...); r.code != code || !strings.Contains(r.out+r.err, text) {
			t.Errorf("%q: %+v, wanted %d and %q", args, r, code, text)
		}
	}
	want(exitDone, "applied", "migrate", "up")
	_, known, err := migrations.Versions(t.Context(), env.DB)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := env.DB.Exec("INSERT INTO " + migrations.VersionTable + " (version_id, is_applied) VALUES (99, 1)"); err != nil {
		t.Fatal(err)
	}
	newer := fmt.Sprintf("the schema has version 99, which is newer than this binary's %d and declares that the binary may run on it\n", known)
	want(exitDone, "nothing to apply: "+newer, "migrate", "up")
	want(exitDone, newer, "migrate", "status")
	want(exitDone, `"schema_version": 99`, "migrate", "status", "--json")
	want(exitFail, "take it back with the newer binary", "migrate", "down", "--force")

	if _, err := env.DB.Exec("UPDATE "+migrations.VersionTable+" SET oldest = ? WHERE version_id = 99", known+1); err != nil {
		t.Fatal(err)
	}
	for _, verb := range []string{"up", "status", "down"} {
		want(exitFail, "schema does not match this binary: it has version 99", "migrate", verb)
	}
}

// Each command that depends on the version refuses a schema that is older than the baseline, and
// prints the version, the commit and the commands.
func TestASchemaBeforeTheBaseline(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, version := range []int{31, 12} {
		if _, err := w.db.Exec("UPDATE "+migrations.VersionTable+" SET version_id = ? WHERE version_id > 0", version); err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{
			{"run"}, {"run", "--once"}, {"status"}, {"status", "--json"}, {"status", "--watch"}, {"doctor"}, {"doctor", "--check", "schema"},
			{"migrate", "up"}, {"migrate", "up", "--dry-run"}, {"migrate", "up", "--dry-run", "--json"}, {"migrate", "status"}, {"migrate", "status", "--json"}, {"migrate", "down", "--force"},
		} {
			r := call(t, w.env, args...)
			for _, want := range []string{
				fmt.Sprintf("schema does not match this binary: it has version %d, this binary needs %d", version, schema.Version),
				"only commit " + schema.Steps + " has the steps between; with MYSQL_DSN set, run: git clone https://github.com/unstale/unstale unstale-steps && git -C unstale-steps checkout " + schema.Steps +
					" && go build -C unstale-steps -o bin/ ./cmd/unstale && unstale-steps/bin/unstale migrate up && unstale migrate up\n",
			} {
				if r.code != exitFail || strings.Count(r.out+r.err, want) != 1 || strings.Contains(r.out+r.err, "pending") {
					t.Errorf("%q: %+v, wanted %q", args, r, want)
				}
			}
		}
	}
}

// A server that accepts SKIP LOCKED and locks nothing, and VTGate, are refused by every command,
// with the reason.
func TestServersThatDoNotFit(t *testing.T) {
	t.Parallel()
	banners := map[string][2]string{
		"TiDB (version 8.0.11-TiDB-v8.5.0)": {"8.0.11-TiDB-v8.5.0", "TiDB Server (Apache License 2.0) Community Edition, MySQL 8.0 compatible"},
		"VTGate":                            {"8.4.6-Vitess", "Version: 24.0.4 (Git revision  branch '') built on Mon Nov 30 00:00:00 UTC 2026"},
	}
	if testenv.OwnFlavor(t) == servers.KindMySQL { // MariaDB can only change its version
		banners["Dolt (version 8.0.33)"] = [2]string{"8.0.33", "Dolt"}
	}
	for name, banner := range banners {
		t.Run(banner[0], func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			const query = "SELECT VERSION() AS version, @@version_comment AS comment"
			w.env["MYSQL_DSN"] = testenv.OwnBannered(t, query, banner[0], banner[1]).DSN
			reason := "the server is " + name + ", which takes no lock for SKIP LOCKED, so two workers would claim the same row"
			cure := "use MySQL 8.0.20, MariaDB 10.6, or a later version"
			if name == "VTGate" {
				reason, cure, _ = strings.Cut(dberr.ErrVTGate.Error(), "; ")
			}
			for _, args := range [][]string{{"run"}, {"run", "--once"}, {"migrate", "up"}, {"migrate", "status"}, {"status"}, {"enqueue", "product", "1"}, {"doctor"}, {"doctor", "--prove"}} {
				r := call(t, w.env, args...)
				if r.code != exitFail || !strings.Contains(r.out+r.err, reason) || !strings.Contains(r.out+r.err, cure) {
					t.Errorf("%q: %+v", args, r)
				}
			}
			r := call(t, w.env, "doctor")
			if want := "critical  reach              MySQL does not fit: no worker starts with it\n"; !strings.Contains(r.out, want) || !strings.Contains(r.out, "cure  "+cure+"\n") {
				t.Errorf("doctor: %s", r.out)
			}
		})
	}
}

// The dry run changes nothing. It prints SQL that leaves the tables that "migrate up" leaves, what
// the statements lock, and the time that was measured.
func TestMigrateUpDryRun(t *testing.T) {
	t.Parallel()
	env := testenv.MySQL(t)
	vars := map[string]string{"MYSQL_DSN": env.DSN}
	run := func(args ...string) string {
		t.Helper()
		r := call(t, vars, append([]string{"migrate", "up"}, args...)...)
		if r.code != exitDone {
			t.Fatalf("%q: %+v", args, r)
		}
		return r.out
	}
	text := run("--dry-run")
	for _, want := range []string{
		"-- This SQL is for reading, not for a client. Apply it with \"unstale migrate up\"",
		"-- 00032_baseline.sql\n-- locks: cache_outbox_version, exclusively for an instant: ",
		"\nCREATE TABLE IF NOT EXISTS cache_outbox (",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in:\n%s", want, text)
		}
	}
	var out struct {
		Migrations []struct {
			Version                               int
			File, Table, Algorithm, Measured, SQL string
			Locks                                 string
		}
	}
	if err := json.Unmarshal([]byte(run("--dry-run", "--json")), &out); err != nil {
		t.Fatal(err)
	}
	m := out.Migrations[0]
	if m.Version != 32 || m.File != "00032_baseline.sql" || m.Table != "cache_outbox_version" || m.Algorithm != "INSTANT" || m.Measured != "" ||
		!strings.HasPrefix(m.Locks, m.Table+", ") || !strings.HasSuffix(m.SQL, "DEALLOCATE PREPARE ddl;") {
		t.Errorf("%+v", m)
	}
	if r := call(t, vars, "migrate", "up", "--json"); r.code != exitUsage || !strings.Contains(r.err, "--json needs --dry-run") {
		t.Errorf("--json: %+v", r)
	}
	var tables int
	if err := env.DB.QueryRow("SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE()").Scan(&tables); err != nil || tables != 0 {
		t.Errorf("the dry run left %d tables, %v", tables, err)
	}
	run()
	if text := run("--dry-run"); text != "nothing to apply: the schema is up to date\n" {
		t.Errorf("after up: %q", text)
	}
	if text := run("--dry-run", "--json"); !strings.Contains(text, `"migrations": []`) {
		t.Errorf("after up: %q", text)
	}
}

// The printed statements create the tables that "migrate up" creates. It then fills them.
func TestMigratePrint(t *testing.T) {
	t.Parallel()
	printed, applied := testenv.MySQL(t), testenv.MySQL(t)
	r := call(t, nil, "migrate", "print")
	for statement := range strings.SplitSeq(strings.TrimSpace(r.out), ";\n\n") {
		if _, err := printed.DB.Exec(strings.TrimSuffix(statement, ";")); err != nil {
			t.Fatalf("%v: %s", err, statement)
		}
		if !strings.HasPrefix(statement, "CREATE TABLE IF NOT EXISTS cache_outbox") {
			t.Error(statement)
		}
	}
	dump := func(env *testenv.Database) string {
		t.Helper()
		text, err := schematest.Dump(t.Context(), env.DB)
		testenv.Must(t, err)
		return text
	}
	tables := func(env *testenv.Database) string { return firstRows.ReplaceAllString(dump(env), "") }
	if r := call(t, map[string]string{"MYSQL_DSN": applied.DSN}, "migrate", "up"); r.code != exitDone {
		t.Fatalf("%+v", r)
	}
	if got, want := tables(printed), tables(applied); got != want {
		t.Errorf("%s\n\nwant:\n%s", got, want)
	}
	if r := call(t, map[string]string{"MYSQL_DSN": printed.DSN}, "migrate", "up"); r.code != exitDone || !strings.HasPrefix(r.out, "applied 00032_baseline.sql") {
		t.Errorf("%+v", r)
	}
	if got, want := dump(printed), dump(applied); got != want {
		t.Errorf("%s\n\nwant:\n%s", got, want)
	}
	for _, query := range []string{"SELECT COUNT(*) FROM cache_outbox_source", "SELECT COUNT(*) FROM cache_outbox_version WHERE version_id = 32"} {
		var n int
		if err := printed.DB.QueryRow(query).Scan(&n); err != nil || n != 1 {
			t.Errorf("%s: %d, %v", query, n, err)
		}
	}
}

// firstRows matches what a dump says of rows.
var firstRows = regexp.MustCompile(`(?m)^(source|version)\t.*\n`)
