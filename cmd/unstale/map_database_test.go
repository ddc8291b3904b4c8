package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/unstale/unstale/internal/testenv"
)

// map check fails for what this release still loads and the next one refuses.
func TestMapCheckDeprecations(t *testing.T) {
	t.Parallel()
	file := writeFile(t, `version: 1
params:
  a: {lookup: {by: [id], sql: "SELECT x, a FROM t WHERE x IN (?) LIMIT 1"}}
  b: {lookup: {by: [id], sql: "SELECT x, b FROM t WHERE x IN (?) AND y = '{id}'"}}
entities:
  product: {params: [a, b], keys: ["shop:{a}:{b}"]}
`)
	r := call(t, nil, "map", "check", file)
	if r.code != exitFail || r.out != "" || !strings.Contains(r.err, file+`:3:31: "LIMIT": a lookup is asked for several IDs together`) ||
		!strings.Contains(r.err, file+`:4:31: "{id}": the SQL of a lookup is not a template`) || !strings.Contains(r.err, "2 faults") {
		t.Errorf("%+v", r)
	}
	var object struct {
		OK     bool
		Faults []place
	}
	r = call(t, nil, "map", "check", file, "--json")
	if err := json.Unmarshal([]byte(r.out), &object); err != nil || object.OK || len(object.Faults) != 2 || object.Faults[1].Line != 4 {
		t.Errorf("%v: %+v", err, r)
	}
}

// With --mysql-dsn every fault comes with its place, and before a word about the map; lookups are
// proven with IDs of the tables.
func TestMapCheckDatabase(t *testing.T) {
	t.Parallel()
	env := testenv.MySQL(t)
	for _, stmt := range []string{
		"CREATE TABLE products (id INT PRIMARY KEY, name VARCHAR(100), rate FLOAT)",
		"CREATE TABLE listed (product_id INT, category_id INT, PRIMARY KEY (product_id, category_id))",
		"INSERT INTO listed VALUES (1, 7), (1, 9), (2, 8), (3, 9)",
		"CREATE TABLE brands (id INT)",
	} {
		if _, err := env.DB.Exec(stmt); err != nil {
			t.Fatal(err)
		}
	}
	text := func(category, brand, capture string) string {
		return fmt.Sprintf(`version: 1
params:
  category_id: {lookup: {by: [id], sql: %q}}
  brand_id: {lookup: {by: [id], sql: %q}}
entities:
  product: {params: [category_id, brand_id], keys: ["shop:{category_id}:{brand_id}"]}
capture:
  products: %s
`, category, brand, capture)
	}
	const good, empty = "SELECT product_id, category_id FROM listed WHERE product_id IN (?)", "SELECT id, id FROM brands WHERE id IN (?)"
	file := writeFile(t, text(good, empty, "{entity: product, id: id}"))
	r := call(t, nil, "map", "check", file, "--mysql-dsn", env.DSN)
	if r.code != exitDone || r.err != "" || !strings.Contains(r.out, "is good: version ") ||
		!strings.Contains(r.out, "lookup: "+file+":3:3: category_id: finds the same 4 rows for 3 IDs together and one by one\n") ||
		!strings.Contains(r.out, "lookup: "+file+":4:3: brand_id: not proven, the tables are empty, or no row fits its conditions\n") {
		t.Errorf("%+v", r)
	}
	var object struct {
		OK      bool
		Lookups []lookupProof
	}
	r = call(t, nil, "map", "check", file, "--mysql-dsn", env.DSN, "--json")
	if err := json.Unmarshal([]byte(r.out), &object); err != nil || !object.OK || len(object.Lookups) != 2 ||
		!object.Lookups[0].Proven || object.Lookups[0].Line != 3 || object.Lookups[1].Proven {
		t.Errorf("%v: %+v", err, r)
	}
	file = writeFile(t, `version: 1
entities:
  product: {keys: ["shop:{id}"]}
  list: {patterns: ["list:{id}:*"]}
capture:
  products: [{entity: product, id: name}, {entity: list, id: name}, {entity: list, id: "NULLIF({row}.name, '')"}, {entity: product, id: id}]
`)
	r = call(t, nil, "map", "check", file, "--mysql-dsn", env.DSN)
	said := fmt.Sprintf(`capture: %s:6:14: products: where name is '', keys are unlinked with nothing in the place of {id}
capture: %[1]s:6:43: products: each write where name is '' makes a dead letter, because {id} in the pattern "list:{id}:*" would match too much; `+
		"leave such rows out with the id NULLIF({row}.`name`, ''), or forbid them with CHECK (`name` <> '')\n", file)
	if r.code != exitDone || r.err != "" || !strings.HasSuffix(r.out, said) {
		t.Errorf("%+v, wanted at the end %s", r, said)
	}
	file = writeFile(t, text("SELECT product_id, FLOOR(RAND() * 1000000000) FROM listed WHERE product_id IN (?)", "SELECT product_id, category_id FROM listed WHERE product_id IN (?) GROUP BY product_id",
		"{entity: product, id: ix, watch: [nam, other], params: {category_id: rate, brand_id: 'NOPE({row}.id)'}}"))
	r = call(t, nil, "map", "check", file, "--mysql-dsn", env.DSN)
	if r.code != exitFail || r.out != "" {
		t.Errorf("%+v", r)
	}
	for _, want := range []string{
		`:3:3: "category_id": its lookup is right for one ID and wrong for several: for "1" it finds `, ` together with 2 other IDs; let each row`,
		`:4:3: "brand_id": its lookup fails: look up: Error 1055 `, `; name every column that it selects in GROUP BY`,
		`:8:3: "products": the table has no column nam; did you mean "name"?`, `:8:3: "products": the table has no column other` + "\n", `:8:3: "products": id: the table has no column ix; did you mean "id"?`,
		`:8:3: "products": the param category_id: the column rate is of the type float`, `:8:3: "products": the expression NOPE({row}.id): `, "7 faults",
	} {
		if !strings.Contains(r.err, want) {
			t.Errorf("%s is not in:\n%s", want, r.err)
		}
	}
	if r := call(t, nil, "map", "check", file, "--mysql-dsn", "u:p@tcp(127.0.0.1:1)/d"); r.code != exitFail || strings.Contains(r.out, "is good") || !strings.Contains(r.err, "127.0.0.1:1") {
		t.Errorf("%+v", r)
	}
}
