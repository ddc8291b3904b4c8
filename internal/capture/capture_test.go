package capture_test

import (
	"slices"
	"strings"
	"testing"
)

const products = `CREATE TABLE products (
  id INT UNSIGNED PRIMARY KEY, name VARCHAR(50), price DECIMAL(10,2), category_id INT, notes JSON, stock INT NOT NULL DEFAULT 0
) DEFAULT CHARACTER SET utf8mb4`

const productCapture = `  products: {entity: product, id: id, watch: [name, price, notes], params: {category_id: category_id}}
`

// Each kind of write leaves its rows: one row for a change of a watched column, with the old and
// the new value, two rows for a changed ID, and none if nothing changes.
func TestRowsOfWrites(t *testing.T) {
	t.Parallel()
	s := newShop(t, products)
	s.apply(productCapture)
	s.want("INSERT INTO products (id, name, category_id) VALUES (1, 'tea', 7), (2, NULL, NULL)",
		`product 1 {"category_id": ["7"]}`, `product 2 {"category_id": [null]}`)
	s.want("UPDATE products SET stock = stock + 1")
	s.want("UPDATE products SET name = name, price = price, notes = notes")
	s.want("UPDATE products SET name = 'Tea' WHERE id = 1", `product 1 {"category_id": ["7", "7"]}`)
	s.want("UPDATE products SET category_id = 9 WHERE id = 1", `product 1 {"category_id": ["7", "9"]}`)
	s.want("UPDATE products SET category_id = 9 WHERE id = 2", `product 2 {"category_id": [null, "9"]}`)
	s.want("UPDATE products SET id = 3 WHERE id = 2", `product 3 {"category_id": ["9", "9"]}`, `product 2 {"category_id": ["9", "9"]}`)
	s.want("REPLACE INTO products (id, name, category_id) VALUES (1, 'coffee', 8)",
		`product 1 {"category_id": ["9"]}`, `product 1 {"category_id": ["8"]}`)
	s.want("INSERT INTO products (id, name) VALUES (1, 'x') ON DUPLICATE KEY UPDATE stock = 5")
	s.want("DELETE FROM products", `product 1 {"category_id": ["8"]}`, `product 3 {"category_id": ["9"]}`)
}

// A row of a junction table between products and categories is a change of its product.
func TestTableBetweenTwo(t *testing.T) {
	t.Parallel()
	s := newShop(t, "CREATE TABLE product_categories (product_id INT, category_id INT, PRIMARY KEY (product_id, category_id))")
	s.apply(`  product_categories:
    - {entity: product, id: product_id, params: {category_id: category_id}}
    - {entity: category, id: category_id, on: [insert, delete]}
`)
	s.want("INSERT INTO product_categories VALUES (1, 7)", `product 1 {"category_id": ["7"]}`, "category 7")
	s.want("UPDATE product_categories SET product_id = 2", `product 2 {"category_id": ["7", "7"]}`, `product 1 {"category_id": ["7", "7"]}`)
	s.want("DELETE FROM product_categories", `product 2 {"category_id": ["7"]}`, "category 7")
}

// Values that a collation treats as equal make different keys.
func TestComparisonIsBytewise(t *testing.T) {
	t.Parallel()
	s := newShop(t,
		"CREATE TABLE things (id VARCHAR(20) PRIMARY KEY, name VARCHAR(50), code CHAR(5), notes JSON, kind ENUM('a','b'), n DECIMAL(10,2), data VARBINARY(9), at DATETIME(6)) DEFAULT CHARACTER SET utf8mb4")
	s.apply("  things: {entity: product, id: id}\n")
	s.want(`INSERT INTO things VALUES ('été', 'été', 'e', '{"a": 1}', 'a', 1, 'a', '2026-01-01')`, "product été")
	for _, change := range []string{
		"name = 'ETE'", "name = 'ete'", "name = 'ete '", "name = NULL", "name = ''", "code = 'E'", `notes = '{"a": "É"}'`, `notes = '{"a": "é"}'`, "notes = NULL", "kind = 'b'",
		"n = 1.01", "data = 'A'", "data = 'A\\0'", "at = '2026-01-01 00:00:00.000001'", "at = NULL",
	} {
		s.want("UPDATE things SET "+change, "product été")
		s.want("UPDATE things SET " + change)
	}
	s.want("UPDATE things SET id = 'ETE'", "product ETE", "product été")
	s.want("UPDATE things SET id = 'ETE'")
}

// A session can declare that it writes its rows itself.
func TestSwitchedOff(t *testing.T) {
	t.Parallel()
	s := newShop(t, products)
	s.apply(productCapture)
	conn := s.conn()
	for _, statement := range []string{"SET @unstale_capture = 'off'", "INSERT INTO products (id) VALUES (1)", "SET @unstale_capture = NULL"} {
		if _, err := conn.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	if rows := s.rows(); len(rows) > 0 {
		t.Errorf("rows %q", rows)
	}
	if _, err := conn.ExecContext(t.Context(), "DELETE FROM products"); err != nil {
		t.Fatal(err)
	}
	if rows := s.rows(); len(rows) != 1 {
		t.Errorf("rows %q", rows)
	}
}

// A second apply changes nothing. With another map, it changes the differences, and drops triggers
// that the map no longer has.
func TestApply(t *testing.T) {
	t.Parallel()
	s := newShop(t, products, "CREATE TABLE categories (id INT PRIMARY KEY, name TEXT)")
	check := func(section string, want ...string) {
		t.Helper()
		if got := s.apply(section); !slices.Equal(got, want) {
			t.Errorf("done: %q, wanted %q", got, want)
		}
		if got := s.apply(section); len(got) > 0 {
			t.Errorf("done a second time: %q", got)
		}
		for _, state := range s.states(section) {
			if !strings.HasPrefix(state, "in place: ") {
				t.Errorf("then %s", state)
			}
		}
	}
	check(productCapture,
		"create AFTER INSERT on products: missing", "create AFTER UPDATE on products: missing", "create AFTER DELETE on products: missing")
	check(strings.Replace(productCapture, "[name, price, notes]", "[name]", 1),
		"create AFTER UPDATE on products: changed", "drop AFTER UPDATE on products: changed")
	check("  categories: {entity: category, id: id, on: [delete]}\n",
		"create AFTER DELETE on categories: missing",
		"drop AFTER DELETE on products: not in the map", "drop AFTER INSERT on products: not in the map", "drop AFTER UPDATE on products: not in the map")
}

// Any change of triggers is reported, and repaired.
func TestPlanSeesWhatBecameOfTriggers(t *testing.T) {
	t.Parallel()
	const section = "  products: {entity: product, id: id, watch: [name], on: [update]}\n"
	s := newShop(t, products)
	s.apply(section)
	check := func(want ...string) {
		t.Helper()
		if got := s.states(section); !slices.Equal(got, want) {
			t.Errorf("states %q, wanted %q", got, want)
		}
		s.apply(section)
		if got := s.states(section); !slices.Equal(got, []string{"in place: AFTER UPDATE on products"}) {
			t.Errorf("mended: %q", got)
		}
	}
	s.exec("CREATE TABLE products_new LIKE products", "RENAME TABLE products TO products_old, products_new TO products")
	check("missing: AFTER UPDATE on products", "renamed away: AFTER UPDATE on products_old")

	changes, err := s.capturer(section).Plan(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	have := *changes[0].Have
	s.exec("DROP TRIGGER "+have.Name, "CREATE TRIGGER "+have.Name+" AFTER UPDATE ON products FOR EACH ROW SET @x = 1")
	check("changed: AFTER UPDATE on products")

	changes, err = s.capturer(section).Plan(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	have = *changes[0].Have
	s.exec("DROP TRIGGER "+have.Name, "SET SESSION sql_mode = ''", "SELECT 1")
	check("missing: AFTER UPDATE on products")

	s.exec("ALTER TABLE products MODIFY name VARBINARY(50)")
	check("changed: AFTER UPDATE on products")
}

// Errors of the map against the schema are reported together, with their lines.
func TestFaultsOfTheSchema(t *testing.T) {
	t.Parallel()
	s := newShop(t, "CREATE TABLE things (id BINARY(16), name VARCHAR(300), f DOUBLE, at TIMESTAMP NULL, b BIT(8), j POINT)", "CREATE VIEW seen AS SELECT 1 AS id")
	for section, want := range map[string]string{
		"  things: {entity: product, id: id}\n":                                     "line 6 of the map: the capture of things: id: the column id is of the type binary: it has bytes, and no text; give an expression, such as HEX({row}.`id`), or BIN_TO_UUID({row}.`id`) in MySQL",
		"  things: {entity: product, id: name}\n":                                   "the column name may have 300 characters, an id of the outbox at most 255",
		"  things: {entity: product, id: f}\n":                                      "not exact",
		"  things: {entity: product, id: nope}\n":                                   "the table has no column nope",
		"  things: {entity: product, id: '{row}.f', watch: [nope]}\n":               "the table has no column nope",
		"  things: {entity: product, id: '{row}.f', params: {value: at}}\n":         "the param value: the column at is of the type timestamp: its text depends on the time zone",
		"  things: {entity: product, id: '{row}.f', params: {value: b}}\n":          "it has bits",
		"  things: {entity: product, id: '{row}.f', params: {value: j}}\n":          "no text of its own",
		"  nothing: {entity: product, id: id}\n  more: {entity: product, id: id}\n": "line 7 of the map: the capture of more: the database has no table more",
		"  seen: {entity: product, id: id}\n":                                       "seen is a view, which has no triggers",
	} {
		if _, err := s.capturer(section).Plan(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, wanted %q", section, err, want)
		}
	}
}
