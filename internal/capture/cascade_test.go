package capture_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/unstale/unstale/internal/capture"
	"github.com/unstale/unstale/internal/servers"
)

// A row that a foreign key deletes or changes fires no trigger of the child. The parent's trigger
// inserts the outbox rows.
func TestCascades(t *testing.T) {
	t.Parallel()
	s := newShop(t,
		"CREATE TABLE brands (id INT PRIMARY KEY, name TEXT)",
		"CREATE TABLE categories (id INT PRIMARY KEY, brand_id INT, FOREIGN KEY of_brand (brand_id) REFERENCES brands (id) ON DELETE CASCADE ON UPDATE CASCADE)",
		`CREATE TABLE products (id INT PRIMARY KEY, name TEXT, category_id INT, value INT,
			CONSTRAINT in_category FOREIGN KEY (category_id) REFERENCES categories (id) ON DELETE CASCADE ON UPDATE CASCADE)`,
		"CREATE TABLE suppliers (id INT PRIMARY KEY)",
		"CREATE TABLE offers (product_id INT, supplier_id INT, FOREIGN KEY (supplier_id) REFERENCES suppliers (id) ON DELETE SET NULL ON UPDATE CASCADE)",
		"INSERT INTO brands VALUES (1, 'a'), (2, 'b')", "INSERT INTO categories VALUES (7, 1), (8, 1), (9, 2)",
		"INSERT INTO products VALUES (1, 'x', 7, 5), (2, 'y', 7, NULL), (3, 'z', 8, 5), (4, 'w', NULL, 5)",
		"INSERT INTO suppliers VALUES (1), (2)", "INSERT INTO offers VALUES (1, 1), (2, 2)",
	)
	const section = `  products: {entity: product, id: id, params: {category_id: category_id}}
  offers: {entity: product, id: product_id, params: {value: supplier_id}}
`
	s.apply(section)
	s.want("UPDATE brands SET name = 'c'")
	s.want("UPDATE categories SET brand_id = 2 WHERE id = 8")
	s.want("UPDATE categories SET id = 70 WHERE id = 7", `product 1 {"category_id": ["7", "70"]}`, `product 2 {"category_id": ["7", "70"]}`)
	s.want("DELETE FROM categories WHERE id = 70", `product 1 {"category_id": ["70"]}`, `product 2 {"category_id": ["70"]}`)
	s.want("DELETE FROM brands", `product 3 {"category_id": ["8"]}`)
	s.want("UPDATE suppliers SET id = 3 WHERE id = 1", `product 1 {"value": ["1", "3"]}`)
	s.want("DELETE FROM suppliers WHERE id = 3", `product 1 {"value": ["3"]}`)
	s.want("DELETE FROM products", `product 4 {"category_id": [null]}`)
	if got := s.apply(section); len(got) > 0 {
		t.Errorf("done a second time: %q", got)
	}
}

// A tree in one table is deleted from its root, or from the middle.
func TestCascadeInATree(t *testing.T) {
	t.Parallel()
	s := newShop(t, "CREATE TABLE categories (id INT PRIMARY KEY, parent_id INT, FOREIGN KEY (parent_id) REFERENCES categories (id) ON DELETE CASCADE)")
	s.apply("  categories: {entity: category, id: id}\n")
	s.exec("INSERT INTO categories VALUES (1, NULL), (2, 1), (3, 2), (4, 3), (5, 1), (6, NULL)", "DELETE FROM cache_outbox")
	s.want("DELETE FROM categories WHERE id = 3", "category 4", "category 3")
	s.exec("DELETE FROM categories WHERE id = 1")
	rows := strings.Join(s.rows(), ",")
	for _, id := range []string{"1", "2", "5"} {
		if !strings.Contains(rows, "category "+id) {
			t.Errorf("no row of %s: %s", id, rows)
		}
	}
	if strings.Contains(rows, "category 6") {
		t.Error(rows)
	}
}

// sorted runs a statement and compares the rows that it leaves, in any order.
func (s *shop) sorted(statement string, rows ...string) {
	s.t.Helper()
	s.exec(statement)
	got := s.rows()
	slices.Sort(got)
	if !slices.Equal(got, rows) {
		s.t.Errorf("%s: got rows %q, wanted %q", statement, got, rows)
	}
}

// A row of a tree whose referenced columns are NULL, or one of them, is the end of its branch. It
// is deleted or changed like the others.
func TestTreeWithoutReferences(t *testing.T) {
	t.Parallel()
	s := newShop(t,
		"CREATE TABLE categories (id INT PRIMARY KEY, code VARCHAR(9) UNIQUE, parent_code VARCHAR(9), FOREIGN KEY (parent_code) REFERENCES categories (code) ON DELETE CASCADE)",
		`CREATE TABLE shelves (id INT PRIMARY KEY, hall INT, code INT, parent_hall INT, parent_code INT, UNIQUE (hall, code),
			FOREIGN KEY (parent_hall, parent_code) REFERENCES shelves (hall, code) ON DELETE CASCADE)`,
		"CREATE TABLE labels (id INT PRIMARY KEY, code VARCHAR(9) UNIQUE, next_code VARCHAR(9), FOREIGN KEY (next_code) REFERENCES labels (code) ON DELETE SET NULL)",
	)
	s.apply(`  categories: {entity: category, id: id}
  shelves: {entity: category, id: id}
  labels: {entity: product, id: id, params: {value: next_code}}
`)
	for _, statement := range []string{"DELETE FROM categories WHERE id = 1", "REPLACE INTO categories VALUES (1, 'x', NULL)"} {
		s.exec("INSERT INTO categories VALUES (1, 'a', NULL), (2, 'b', 'a'), (3, NULL, 'a'), (4, NULL, 'b'), (5, NULL, NULL)", "DELETE FROM cache_outbox")
		want := []string{"category 1", "category 2", "category 3", "category 4"}
		if strings.HasPrefix(statement, "REPLACE") {
			want = slices.Insert(want, 0, want[0]) // deleted and inserted
		}
		s.sorted(statement, want...)
		s.exec("DELETE FROM categories")
	}
	s.exec("INSERT INTO shelves VALUES (1, 1, 1, NULL, NULL), (2, 1, 2, 1, 1), (3, 1, NULL, 1, 2), (4, NULL, 3, 1, 2), (5, NULL, 4, 1, NULL)",
		"INSERT INTO labels VALUES (1, 'a', NULL), (2, NULL, 'a'), (3, 'c', 'a'), (4, NULL, 'c')", "DELETE FROM cache_outbox")
	s.sorted("DELETE FROM shelves WHERE id = 1", "category 1", "category 2", "category 3", "category 4")
	s.sorted("DELETE FROM labels WHERE id = 1", `product 1 {"value": [null]}`, `product 2 {"value": ["a"]}`, `product 3 {"value": ["a"]}`)
}

// A delete in a tree follows all keys of the table to itself, whichever operations are captured.
func TestTreeWithSeveralKeys(t *testing.T) {
	t.Parallel()
	s := newShop(t, `CREATE TABLE categories (id INT PRIMARY KEY, parent_id INT, next_id INT, FOREIGN KEY (parent_id) REFERENCES categories (id) ON DELETE CASCADE,
		FOREIGN KEY (next_id) REFERENCES categories (id) ON DELETE SET NULL)`)
	for _, on := range []string{"update", "update, delete"} {
		s.apply("  categories: {entity: product, id: id, on: [" + on + "], params: {value: next_id}}\n")
		s.exec("INSERT INTO categories VALUES (1, NULL, NULL), (2, 1, NULL), (3, NULL, 2)", "DELETE FROM cache_outbox", "DELETE FROM categories WHERE id = 1")
		rows := s.rows()
		if !slices.Contains(rows, `product 3 {"value": ["2"]}`) || slices.Contains(rows, `product 2 {"value": [null]}`) != (on != "update") {
			t.Errorf("on %s: rows %q", on, rows)
		}
		s.exec("DELETE FROM categories", "DELETE FROM cache_outbox")
	}
}

// A change of a parent that leaves the child without an ID does not fail.
func TestCascadeThatTakesTheID(t *testing.T) {
	t.Parallel()
	s := newShop(t, "CREATE TABLE codes (id INT PRIMARY KEY, code INT UNIQUE)",
		"CREATE TABLE prices (id INT PRIMARY KEY, code INT, FOREIGN KEY (code) REFERENCES codes (code) ON UPDATE CASCADE)",
		"INSERT INTO codes VALUES (1, 7)", "INSERT INTO prices VALUES (1, 7)")
	s.apply("  prices: {entity: product, id: code}\n")
	s.want("UPDATE codes SET code = 8", "product 7", "product 8")
	s.want("UPDATE codes SET code = NULL", "product 8")
}

// A tree is covered to the depth that the server follows. The server does not delete a deeper tree.
func TestDeepTree(t *testing.T) {
	t.Parallel()
	s := newShop(t, "CREATE TABLE categories (id INT PRIMARY KEY, parent_id INT, FOREIGN KEY (parent_id) REFERENCES categories (id) ON DELETE CASCADE)")
	s.apply("  categories: {entity: category, id: id, on: [delete]}\n")
	deepest := 0
	for _, depth := range []int{1, 2, 14, 15, 16, 17, 40} {
		for id := 1; id <= depth; id++ {
			s.exec(fmt.Sprintf("INSERT INTO categories VALUES (%d, NULLIF(%d, 0))", id, id-1))
		}
		_, err := s.DB.ExecContext(t.Context(), "DELETE FROM categories WHERE id = 1")
		switch rows := s.rows(); {
		case err != nil && len(rows) > 0:
			t.Errorf("%d levels: %d rows, and %v", depth, len(rows), err)
		case err == nil && len(rows) != depth:
			t.Errorf("%d levels: %d rows", depth, len(rows))
		case err == nil:
			deepest = depth
		}
		for id := depth; id >= 1; id-- { // what was refused
			s.exec(fmt.Sprint("DELETE FROM categories WHERE id = ", id))
		}
		s.rows()
	}
	t.Logf("the deepest tree that was deleted had %d levels", deepest)
	if deepest < 14 {
		t.Errorf("%d levels at most", deepest)
	}
}

// A cascade that cannot be covered is refused, with the line to add.
func TestCascadesThatCannotBeCovered(t *testing.T) {
	t.Parallel()
	s := newShop(t,
		"CREATE TABLE codes (code INT PRIMARY KEY)",
		"CREATE TABLE prices (id INT PRIMARY KEY, code INT, FOREIGN KEY (code) REFERENCES codes (code) ON UPDATE CASCADE)",
		"CREATE TABLE labels (id INT PRIMARY KEY, code INT, text VARCHAR(9) AS (CONCAT('k', code)) VIRTUAL, FOREIGN KEY (code) REFERENCES codes (code) ON DELETE SET NULL)",
		"CREATE TABLE middles (id INT PRIMARY KEY, code INT UNIQUE, FOREIGN KEY (code) REFERENCES codes (code) ON DELETE SET NULL)",
		"CREATE TABLE ends (id INT PRIMARY KEY, code INT, FOREIGN KEY (code) REFERENCES middles (code) ON UPDATE CASCADE)",
	)
	for section, want := range map[string]string{
		"  labels: {entity: product, id: id, params: {value: text}}\n": "a generated column uses its columns; write rows for that yourself and add 'cascades: {labels_ibfk_1: ignore delete}' to the capture",
		"  labels: {entity: product, id: \"CONCAT({row}.text)\"}\n":    "a generated column uses its columns",
		"  ends: {entity: product, id: id}\n":                          "changes that of the parent in turn",
	} {
		if _, err := s.capturer(section).Plan(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", section, err)
		}
		s.apply(strings.Replace(section, "}\n", ", cascades: ignore}\n", 1))
	}
	s.apply("  labels: {entity: product, id: \"CONCAT({row}.text)\", on: [insert]}\n  prices: {entity: product, id: id, watch: [id]}\n")
}

// The definer reads the children.
func TestDefinerReadsChildren(t *testing.T) {
	t.Parallel()
	s := newShop(t,
		"CREATE TABLE categories (id INT PRIMARY KEY)",
		"CREATE TABLE products (id INT PRIMARY KEY, category_id INT, FOREIGN KEY (category_id) REFERENCES categories (id) ON DELETE CASCADE)",
	)
	definer := s.account("INSERT ON cache_outbox", "SELECT, TRIGGER ON products", "TRIGGER ON categories")
	c := s.capturer("  products: {entity: product, id: id}\n")
	c.Definer = definer
	if err := c.Apply(t.Context(), func(capture.Change) {}); err == nil || !strings.Contains(err.Error(), "GRANT SELECT ON `"+s.Name+"`.`categories`") {
		t.Fatal(err)
	}
	s.grant(definer, "SELECT ON categories")
	if err := c.Apply(t.Context(), func(capture.Change) {}); err != nil {
		t.Fatal(err)
	}
	s.exec("INSERT INTO categories VALUES (7)")
	s.want("INSERT INTO products VALUES (1, 7)", "product 1")
	s.want("DELETE FROM categories", "product 1")
}

// Changes that triggers do not see: see docs/capture.md.
func TestWhatTriggersDoNotSee(t *testing.T) {
	t.Parallel()
	s := newShop(t,
		"CREATE TABLE products (id INT PRIMARY KEY, name TEXT) PARTITION BY RANGE (id) (PARTITION low VALUES LESS THAN (10), PARTITION high VALUES LESS THAN (20))",
		"CREATE TABLE categories (id INT PRIMARY KEY)",
		"CREATE TABLE offers (id INT PRIMARY KEY, category_id INT, FOREIGN KEY (category_id) REFERENCES categories (id) ON DELETE CASCADE)",
	)
	s.apply("  products: {entity: product, id: id}\n  offers: {entity: product, id: id, cascades: ignore}\n")
	s.exec("INSERT INTO products (id) VALUES (1), (2), (11)", "INSERT INTO categories VALUES (7)", "INSERT INTO offers VALUES (1, 7)", "DELETE FROM cache_outbox")
	s.want("DELETE FROM categories")
	s.want("ALTER TABLE products TRUNCATE PARTITION high")
	s.want("ALTER TABLE products DROP PARTITION high")
	s.want("TRUNCATE TABLE products")
	s.exec("CREATE TABLE products_new LIKE products", "RENAME TABLE products TO products_old, products_new TO products")
	s.want("INSERT INTO products (id) VALUES (3)")
	s.want("INSERT INTO products_old (id) VALUES (3)", "product 3")
	if s.Flavor == servers.KindMySQL {
		s.want("ALTER TABLE products ADD COLUMN price INT") // and what is filled in by it
	}
}

// shows reports whether the server shows an account the actions of foreign keys. MySQL and MariaDB
// 10.11.14 show them to an account that sees the table. MariaDB 10.11.19 requires another privilege
// than SELECT on the whole database.
func (s *shop) shows(a capture.Account) bool {
	s.t.Helper()
	var seen int
	if err := s.as(a).QueryRowContext(s.t.Context(), "SELECT COUNT(*) FROM information_schema.referential_constraints WHERE constraint_schema = DATABASE()").Scan(&seen); err != nil {
		s.t.Fatal(err)
	}
	if seen == 0 && s.Flavor == servers.KindMySQL {
		s.t.Error("MySQL shows no foreign key")
	}
	return seen > 0
}

// An account that cannot see the action of a key gets an error, and nothing is left uncovered. The
// fix of the error suffices.
func TestKeysThatCannotBeSeen(t *testing.T) {
	t.Parallel()
	s := newShop(t,
		"CREATE TABLE categories (id INT PRIMARY KEY)",
		"CREATE TABLE products (id INT PRIMARY KEY, category_id INT, FOREIGN KEY (category_id) REFERENCES categories (id) ON DELETE CASCADE)",
		"CREATE TABLE coupons (id INT PRIMARY KEY)",
	)
	own := s.account("SELECT, TRIGGER ON products", "SELECT, TRIGGER ON categories", "SELECT, TRIGGER ON coupons", "SELECT, INSERT ON cache_outbox", "SELECT ON cache_outbox_version")
	c := s.capturer("  coupons: {entity: product, id: id}\n")
	c.DB = s.as(own)
	if _, err := c.Plan(t.Context()); err != nil {
		t.Errorf("a table without keys: %v", err)
	}
	c.Captures = s.capturer("  products: {entity: product, id: id}\n").Captures
	if !s.shows(own) {
		if _, err := c.Plan(t.Context()); err == nil || !strings.Contains(err.Error(), "GRANT TRIGGER ON it") {
			t.Errorf("%v", err)
		}
		s.grant(own, "TRIGGER ON *")
		c.DB = s.as(own)
	}
	if changes, err := c.Plan(t.Context()); err != nil || len(changes) != 4 {
		t.Errorf("%d changes, %v", len(changes), err)
	}
}
