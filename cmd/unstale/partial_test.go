package main

import (
	"encoding/json"
	"strings"
	"testing"
)

// partMap has a lookup that is too slow as long as the table switch has a row.
const partMap = `version: 1
params:
  category: {lookup: {by: [id], sql: "SELECT product, category FROM categories WHERE product IN (?) AND (SELECT IFNULL(SUM(SLEEP(5)), 0) FROM switch) = 0"}}
entities:
  product: {params: [category], keys: ["shop:product:{id}", "shop:category:{category}"]}
`

// A row whose lookup failed is applied in part. While it is delayed, and once it is a dead letter,
// every command shows the applied part and that the rest may be stale.
func TestPartOfARow(t *testing.T) {
	t.Parallel()
	j := &judged{world: newWorld(t)}
	j.writeMap(partMap)
	j.exec("CREATE TABLE categories (product INT, category INT)", "CREATE TABLE switch (slow INT)", "INSERT INTO switch VALUES (1)",
		"INSERT INTO cache_outbox (entity, entity_id) VALUES ('product', '7')")
	const (
		done   = "; applied without lookups: keys 1, patterns 0, sets 0; the others may be stale"
		part   = "  partial  a lookup failed: these names need none, the rest was not unlinked then"
		clause = "where a lookup failed, "
	)
	wants := func(want string, args ...string) {
		t.Helper()
		if r := call(t, j.env, args...); r.code != exitDone && r.code != exitStale || !strings.Contains(r.out, want) {
			t.Errorf("%q has not %q: %+v", args, want, r)
		}
	}
	history := func(now string) {
		t.Helper()
		for _, args := range [][]string{{"trace", "1"}, {"history", "--row", "1"}} {
			wants(part+"\n  key      shop:product:7\n"+now, args...)
			wants(done+"\n", args...)
		}
		wants(part+"\n  key      shop:product:7\nnow: not in Redis\n", "history", "--key", "shop:product:7")
		wants("nothing; the journal begins at ", "history", "--key", "shop:category:70")
		var found past
		if r := call(t, j.env, "history", "--row", "1", "--json"); json.Unmarshal([]byte(r.out), &found) != nil || len(found.Found) != 1 ||
			!found.Found[0].Partial || len(found.Waits) != 1 || !strings.HasSuffix(found.Waits[0].Error, done) {
			t.Errorf("%+v", r)
		}
	}
	j.start("--once").wantExit(exitDone)
	wants("(lookup_failed): 1 row, lookup_failed \"category\": look up: no answer within ", "status")
	wants("; "+clause+"the error of each row says what was applied without it; see: unstale delayed list --reason lookup_failed\n", "status")
	if r := call(t, j.env, "status", "--json"); strings.Contains(r.out, "keys 1") {
		t.Errorf("the counts of one row stand beside the number of all: %+v", r)
	}
	wants(done+"\n", "delayed", "list")
	history("now: row 1 is delayed until ")

	j.exec("DROP TABLE categories", "UPDATE cache_outbox_delayed SET due_at = UTC_TIMESTAMP(6)")
	j.start("--once").wantExit(exitDone)
	wants("; "+clause+"the dead letter says what was applied without it; see: unstale dead list\n", "status")
	wants(done+"\n", "dead", "list")
	wants(done+"\n", "dead", "show", "1")
	history("now: row 1 is a dead letter, see unstale dead list: lookup_failed: ")

	// The whole row follows its part once the lookup is back.
	j.exec("CREATE TABLE categories (product INT, category INT)", "INSERT INTO categories VALUES (7, 70)", "DELETE FROM switch")
	wants("retried 1 dead letter\n", "dead", "retry", "1")
	j.start("--once").wantExit(exitDone)
	r := call(t, j.env, "trace", "1")
	if strings.Count(r.out, part) != 1 || strings.Count(r.out, "shop:product:7") != 2 || strings.Index(r.out, "shop:category:70") < strings.Index(r.out, part) || strings.Contains(r.out, "now: ") {
		t.Errorf("%+v", r)
	}
}
