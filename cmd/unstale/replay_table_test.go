package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/unstale/unstale/internal/testenv"
)

// A table without triggers for a while: each command says what is not covered, and what to run next.
func TestReplayOfATable(t *testing.T) {
	t.Parallel()
	env := testenv.MySQL(t)
	file := filepath.Join(t.TempDir(), "mapping.yaml")
	testenv.Must(t, os.WriteFile(file, []byte(`version: 1
entities: {product: {params: [category_id], keys: ["it's:{id}", "category:list:{category_id}"]}}
capture: {products: {entity: product, id: id, params: {category_id: category_id}}}
`), 0o600))
	vars := map[string]string{"MYSQL_DSN": env.DSN, "UNSTALE_MAP": file}
	want := func(code int, out, err string, args ...string) string {
		t.Helper()
		r := call(t, vars, args...)
		if r.code != code || !strings.Contains(r.out, out) || !strings.Contains(r.err, err) {
			t.Errorf("%q: %+v, wanted %d, %q and %q", args, r, code, out, err)
		}
		return r.out
	}
	exec := func(statements ...string) {
		t.Helper()
		for _, statement := range statements {
			if _, err := env.DB.Exec(statement); err != nil {
				t.Fatalf("%s: %v", statement, err)
			}
		}
	}
	exec("CREATE TABLE products (id INT PRIMARY KEY, category_id INT)", "INSERT INTO products VALUES (1, 7), (2, 7)")
	want(exitDone, "applied", "", "migrate", "up")
	if out := want(exitDone, "created", "", "capture", "apply"); strings.Contains(out, "not covered") {
		t.Errorf("the first time: %s", out)
	}

	before := time.Now().Add(-time.Minute)
	want(exitDone, "from now on, writes of products leave no row, and their keys stay stale; 'unstale capture apply' covers them again, and says what to run then\n", "",
		"capture", "drop", "--table", "products")
	want(exitFail, "", "the trigger AFTER INSERT on products is missing, so writes still leave no row", "replay", "--table", "products")
	exec("UPDATE products SET category_id = 8 WHERE id = 1")
	out := want(exitDone, "products was not covered since "+before.UTC().Format("2006-"), "", "capture", "apply")
	if !strings.Contains(out, " ('unstale capture drop'); for writes of that time, run: unstale replay --table products --map "+file+"\n") {
		t.Error(out)
	}
	want(exitDone, "nothing to do", "", "capture", "apply")

	// a copy of the table took its place, without the triggers
	exec("CREATE TABLE copy LIKE products", "INSERT INTO copy SELECT * FROM products", "RENAME TABLE products TO old, copy TO products", "DROP TABLE old")
	var applied triggers
	if err := json.Unmarshal([]byte(want(exitDone, "", "", "capture", "apply", "--json")), &applied); err != nil || len(applied.Uncovered) != 1 ||
		applied.Uncovered[0].Table != "products" || applied.Uncovered[0].Drop || applied.Uncovered[0].Since.Before(before) {
		t.Errorf("%+v, %v", applied, err)
	}

	want(exitUsage, "", "--table takes no flag of the journal", "replay", "--table", "products", "--since", "1m")
	want(exitUsage, "", "or --table", "replay")
	want(exitFail, "", "the map does not capture others", "replay", "--table", "others")
	want(exitDone, "would read about 2 rows of products, and insert a row for each\n", "", "replay", "--table", "products", "--dry-run")
	exec("DELETE FROM cache_outbox")
	want(exitDone, "inserted 2 rows for 2 rows of products; workers process them\n", "", "replay", "--table", "products")
	var rows string
	testenv.Must(t, env.DB.QueryRow("SELECT GROUP_CONCAT(entity, ' ', entity_id, ' ', params ORDER BY id) FROM cache_outbox").Scan(&rows))
	if rows != `product 1 {"category_id": ["8"]},product 2 {"category_id": ["7"]}` {
		t.Error(rows)
	}
	want(exitDone, "  unstale invalidate --pattern 'it'\\''s:*' --everything --map "+file+"\n  unstale invalidate --pattern 'category:list:*' --map "+file+"\n", "",
		"replay", "--table", "products")
	var done tableReplay
	if err := json.Unmarshal([]byte(want(exitDone, "", "", "replay", "--table", "products", "--json")), &done); err != nil || done.Rows != 2 || len(done.Patterns) != 2 {
		t.Errorf("%+v, %v", done, err)
	}
	if audit := want(exitDone, "capture drop", "", "audit", "list"); strings.Count(audit, "capture apply") != 3 || strings.Count(audit, `{"table":"products"}`) != 3 {
		t.Error(audit)
	}
}
