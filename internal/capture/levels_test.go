package capture_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/unstale/unstale/internal/capture"
	"github.com/unstale/unstale/internal/mysqlerr"
	"github.com/unstale/unstale/internal/servers"
)

// threeLevels is a schema where a delete of a product deletes its variants and their images. Each
// of the two products has two variants, and each variant has an image.
var threeLevels = []string{
	"CREATE TABLE products (id INT PRIMARY KEY)",
	"CREATE TABLE variants (id INT PRIMARY KEY, product_id INT, FOREIGN KEY (product_id) REFERENCES products (id) ON DELETE CASCADE)",
	"CREATE TABLE images (id INT PRIMARY KEY, variant_id INT, position INT, FOREIGN KEY (variant_id) REFERENCES variants (id) ON DELETE CASCADE)",
	"INSERT INTO products VALUES (1), (2)",
	"INSERT INTO variants VALUES (11, 1), (12, 1), (21, 2), (22, 2)",
	"INSERT INTO images VALUES (111, 11, 0), (121, 12, 0), (211, 21, 0), (221, 22, 0)",
}

const imageCapture = "  images: {entity: product, id: id, on: [delete]}\n"

// While a product is deleted, its variants get no images. The foreign key would delete an image
// without a row if the trigger had read the images before. The test stops the trigger at the image
// of the second variant, when it has read the image of the first.
func TestNoChildrenDuringADelete(t *testing.T) {
	t.Parallel()
	s := newShop(t, threeLevels...)
	s.apply(strings.Replace(imageCapture, "}", ", params: {value: position}}", 1))
	for _, c := range []struct{ level, product, first, second string }{
		{"READ COMMITTED", "1", "11", "12"}, {"REPEATABLE READ", "2", "21", "22"},
	} {
		other, deleter, writer := s.conn(), s.conn(), s.conn()
		s.do(deleter, "SET SESSION TRANSACTION ISOLATION LEVEL "+c.level)
		s.do(writer, "SET SESSION TRANSACTION ISOLATION LEVEL "+c.level, "SET SESSION innodb_lock_wait_timeout = 1")
		s.do(other, "BEGIN", "UPDATE images SET position = 1 WHERE id = "+c.second+"1")
		session, done := s.session(deleter), make(chan error, 1)
		go func() {
			_, err := deleter.ExecContext(t.Context(), "DELETE FROM products WHERE id = "+c.product)
			done <- err
		}()
		s.waits(session)
		_, err := writer.ExecContext(t.Context(), "INSERT INTO images VALUES ("+c.first+"2, "+c.first+", 0)")
		if mysqlerr.Number(err) != mysqlerr.LockTimeout {
			t.Errorf("%s: an image of a variant that is being deleted: %v", c.level, err)
		}
		s.do(other, "COMMIT")
		if err := <-done; err != nil {
			t.Errorf("%s: %v", c.level, err)
		}
		rows := s.rows()
		slices.Sort(rows)
		if want := []string{`product ` + c.first + `1 {"value": ["0"]}`, `product ` + c.second + `1 {"value": ["1"]}`}; !slices.Equal(rows, want) {
			t.Errorf("%s: rows %q, wanted %q", c.level, rows, want)
		}
	}
}

// A row on a middle level that another session has locked fails the delete after the timeout, even
// if errors are skipped.
func TestSkipDoesNotHideLocksOfLevels(t *testing.T) {
	t.Parallel()
	s := newShop(t, threeLevels...)
	for _, section := range []string{imageCapture, strings.Replace(imageCapture, "}", ", on_error: skip}", 1)} {
		s.apply(section)
		other, deleter := s.conn(), s.conn()
		s.do(other, "BEGIN", "SELECT id FROM variants WHERE id = 12 LOCK IN SHARE MODE")
		s.do(deleter, "SET SESSION innodb_lock_wait_timeout = 1")
		if _, err := deleter.ExecContext(t.Context(), "DELETE FROM products WHERE id = 1"); mysqlerr.Number(err) != mysqlerr.LockTimeout {
			t.Errorf("%s: %v", section, err)
		}
		s.do(other, "ROLLBACK")
		if rows := s.rows(); len(rows) > 0 {
			t.Errorf("%s: rows %q", section, rows)
		}
		s.wantDead()
	}
	s.want("DELETE FROM products WHERE id = 1", "product 111", "product 121")
}

// The limits of a client do not make a delete fail because of its trigger's reads.
func TestLimitsOfTheSession(t *testing.T) {
	t.Parallel()
	s := newShop(t, append(slices.Clone(threeLevels),
		"CREATE TABLE categories (id INT PRIMARY KEY, parent_id INT, FOREIGN KEY (parent_id) REFERENCES categories (id) ON DELETE CASCADE ON UPDATE RESTRICT)",
		"CREATE TABLE brands (id INT PRIMARY KEY)",
		"CREATE TABLE offers (id INT PRIMARY KEY, brand_id INT, FOREIGN KEY (brand_id) REFERENCES brands (id) ON DELETE SET NULL ON UPDATE CASCADE)",
		"INSERT INTO categories VALUES (1, NULL), (2, 1), (3, 2), (4, 3), (5, 4)", "INSERT INTO brands VALUES (1)", "INSERT INTO offers VALUES (1, 1), (2, 1), (3, 1)")...)
	s.apply(imageCapture + "  categories: {entity: category, id: id, on: [delete]}\n  offers: {entity: product, id: id, on: [update], watch: [brand_id]}\n")
	conn := s.conn()
	recursion := "SET SESSION cte_max_recursion_depth = 1"
	if s.Flavor == servers.KindMariaDB {
		recursion = "SET SESSION max_recursive_iterations = 1"
	}
	s.do(conn, "SET SESSION max_join_size = 1, SESSION sql_select_limit = 1, SESSION sql_safe_updates = 1", recursion)
	for _, c := range []struct {
		statement string
		rows      int
	}{
		{"DELETE FROM products WHERE id = 2", 2},
		{"DELETE FROM categories WHERE id = 1", 5},
		{"UPDATE brands SET id = 2 WHERE id = 1", 3},
		{"DELETE FROM brands WHERE id = 2", 3},
	} {
		s.do(conn, c.statement)
		if rows := s.rows(); len(rows) != c.rows {
			t.Errorf("%s: rows %q, wanted %d", c.statement, rows, c.rows)
		}
	}
	var join, depth int64
	name := strings.TrimPrefix(strings.TrimSuffix(recursion, " = 1"), "SET SESSION ")
	if err := conn.QueryRowContext(t.Context(), "SELECT @@SESSION.max_join_size, @@SESSION."+name).Scan(&join, &depth); err != nil || join != 1 || depth != 1 {
		t.Errorf("afterwards max_join_size is %d, %s is %d: %v", join, name, depth, err)
	}
}

// MySQL requires a privilege to change rows from an account that locks them. One column is enough.
func TestDefinerLocksLevels(t *testing.T) {
	t.Parallel()
	s := newShop(t, threeLevels...)
	definer := s.account("INSERT ON cache_outbox", "SELECT, TRIGGER ON products", "SELECT, TRIGGER ON variants", "SELECT, TRIGGER ON images")
	c := s.capturer(imageCapture)
	c.Definer = definer
	err := c.Apply(t.Context(), func(capture.Change) {})
	if s.Flavor == servers.KindMariaDB {
		if err != nil {
			t.Fatal(err)
		}
		s.want("DELETE FROM products WHERE id = 1", "product 111", "product 121")
		return
	}
	cure := "GRANT UPDATE (`product_id`) ON `" + s.Name + "`.`variants` TO " + definer.String()
	if err == nil || !strings.Contains(err.Error(), cure+";") || strings.Count(err.Error(), "GRANT") != 1 {
		t.Fatalf("%v, wanted %s", err, cure)
	}
	for _, right := range []string{"UPDATE (id) ON variants", "DELETE ON variants", "LOCK TABLES ON " + s.Name + ".*", strings.TrimSuffix(strings.TrimPrefix(cure, "GRANT "), " TO "+definer.String())} {
		s.grant(definer, right)
		s.applyBy(c)
		s.exec("INSERT IGNORE INTO products VALUES (1)", "INSERT IGNORE INTO variants VALUES (11, 1)", "INSERT IGNORE INTO images VALUES (111, 11, 0)",
			"DELETE FROM cache_outbox", "DELETE FROM products WHERE id = 1")
		if rows := s.rows(); !slices.Contains(rows, "product 111") {
			t.Errorf("with %s: rows %q", right, rows)
		}
		s.exec("REVOKE " + right + " FROM " + definer.String())
		if _, err := c.Examine(t.Context()); err == nil || !strings.Contains(err.Error(), cure) {
			t.Errorf("without %s: %v", right, err)
		}
	}
}

// A tree in one table gets no rows while it is deleted at REPEATABLE READ. The isolation level of
// the other sessions does not matter. The trigger cannot lock rows in its table (1442), and relies
// on gap locks.
func TestNoChildrenDuringADeleteOfATree(t *testing.T) {
	t.Parallel()
	s := newShop(t,
		"CREATE TABLE categories (id INT PRIMARY KEY, parent_id INT, position INT, FOREIGN KEY (parent_id) REFERENCES categories (id) ON DELETE CASCADE)",
		"INSERT INTO categories VALUES (1, NULL, 0), (2, 1, 0), (3, 2, 0), (4, 3, 0)")
	s.apply("  categories: {entity: product, id: id, on: [delete], params: {value: position}}\n")
	other, deleter, writer := s.conn(), s.conn(), s.conn()
	s.do(deleter, "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
	s.do(writer, "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED", "SET SESSION innodb_lock_wait_timeout = 1")
	s.do(other, "BEGIN", "UPDATE categories SET position = 1 WHERE id = 4")
	session, done := s.session(deleter), make(chan error, 1)
	go func() {
		_, err := deleter.ExecContext(t.Context(), "DELETE FROM categories WHERE id = 1")
		done <- err
	}()
	s.waits(session)
	if _, err := writer.ExecContext(t.Context(), "INSERT INTO categories VALUES (5, 2, 0)"); mysqlerr.Number(err) != mysqlerr.LockTimeout {
		t.Errorf("a row in a tree that is being deleted: %v", err)
	}
	s.do(other, "COMMIT")
	if err := <-done; err != nil {
		t.Error(err)
	}
	if rows := s.rows(); len(rows) != 4 || !slices.Contains(rows, `product 4 {"value": ["1"]}`) {
		t.Errorf("rows %q", rows)
	}
}
