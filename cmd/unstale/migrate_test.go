package main

import (
	"fmt"
	"strings"
	"testing"

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
