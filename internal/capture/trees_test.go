package capture_test

import (
	"database/sql"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/unstale/unstale/internal/capture"
	"github.com/unstale/unstale/internal/mysqlerr"
	"github.com/unstale/unstale/internal/servers"
)

// A watched table is one whose captured rows a test compares before and after a statement. The
// fields are SQL: what identifies a row, its ID, and the value of the param value.
type watched struct{ table, key, id, value string }

// snapshot returns the ID and the value of each row.
func (s *shop) snapshot(of watched) map[string][2]sql.NullString {
	s.t.Helper()
	all := map[string][2]sql.NullString{}
	rows, err := s.DB.QueryContext(s.t.Context(), "SELECT "+of.key+", "+of.id+", "+of.value+" FROM "+of.table+" AS c")
	if err != nil {
		s.t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var key string
		var one [2]sql.NullString
		if err := rows.Scan(&key, &one[0], &one[1]); err != nil {
			s.t.Fatal(err)
		}
		all[key] = one
	}
	if err := rows.Err(); err != nil {
		s.t.Fatal(err)
	}
	return all
}

// covers runs a statement, and reports each row that it changes or deletes without a row of the
// outbox for its old and for its new ID and value. The entity is product. It must change a number of
// rows. MySQL 9.7.4 changes fewer: if a delete passes a tree, it leaves children of rows that it
// deletes (innodb_native_foreign_keys = OFF).
func (s *shop) covers(changes int, statement string, tables ...watched) {
	s.t.Helper()
	before := make([]map[string][2]sql.NullString, len(tables))
	for i, of := range tables {
		before[i] = s.snapshot(of)
	}
	s.rows()
	s.exec(statement)
	rows, changed := s.rows(), 0
	for i, of := range tables {
		after := s.snapshot(of)
		for _, key := range slices.Sorted(maps.Keys(before[i])) {
			was := before[i][key]
			is, left := after[key]
			if left && is == was {
				continue
			}
			changed++
			for _, one := range [][2]sql.NullString{was, is} {
				if one[0].Valid && !slices.ContainsFunc(rows, func(row string) bool {
					return strings.HasPrefix(row, "product "+one[0].String+" ") && (!one[1].Valid || strings.Contains(row, `"`+one[1].String+`"`))
				}) {
					s.t.Errorf("%s: MISSED in %s: %v, then %v: no row with %v in %q", statement, of.table, was, is, one, rows)
				}
			}
		}
	}
	if changed != changes && (s.Flavor == servers.KindMariaDB || changed == 0) {
		s.t.Errorf("%s: %d changes, wanted %d", statement, changed, changes)
	}
}

// shelves is a schema with a tree in the middle: a delete of a hall deletes shelves with all below
// them, their boxes and the boxes' labels.
var shelves = []string{
	"CREATE TABLE halls (id INT PRIMARY KEY)",
	`CREATE TABLE shelves (id INT PRIMARY KEY, hall_id INT, parent_id INT, FOREIGN KEY (hall_id) REFERENCES halls (id) ON DELETE CASCADE,
		FOREIGN KEY (parent_id) REFERENCES shelves (id) ON DELETE CASCADE)`,
	"CREATE TABLE boxes (id INT PRIMARY KEY, shelf_id INT, FOREIGN KEY (shelf_id) REFERENCES shelves (id) ON DELETE CASCADE)",
	"CREATE TABLE labels (id INT PRIMARY KEY, box_id INT, value INT, FOREIGN KEY (box_id) REFERENCES boxes (id) ON DELETE CASCADE)",
	"INSERT INTO halls VALUES (1), (2)",
	"INSERT INTO shelves VALUES (1, 1, NULL), (2, NULL, 1), (3, NULL, 2), (4, 2, NULL)",
	"INSERT INTO boxes VALUES (1, 1), (2, 3), (4, 4)",
	"INSERT INTO labels VALUES (1, 1, 5), (2, 2, 5), (4, 4, 5)",
}

// A delete passes trees: in the deleted table, in the middle, in the captured table, and in two
// tables.
func TestDeletesThatPassTrees(t *testing.T) {
	t.Parallel()
	nested := []string{ // boxes contain boxes
		"ALTER TABLE boxes ADD inside INT, ADD FOREIGN KEY (inside) REFERENCES boxes (id) ON DELETE CASCADE", "INSERT INTO boxes VALUES (5, NULL, 2), (6, NULL, 5)",
	}
	next := []string{
		"DROP TABLE labels, boxes", "ALTER TABLE shelves ADD value INT, ADD FOREIGN KEY (value) REFERENCES shelves (id) ON DELETE SET NULL", "UPDATE shelves SET value = 3 WHERE id = 4",
	}
	spare := []string{
		"DROP TABLE labels", "ALTER TABLE boxes ADD value INT, ADD FOREIGN KEY (value) REFERENCES shelves (id) ON DELETE SET NULL", "UPDATE boxes SET value = 2 WHERE id = 4",
	}
	ofShelves, ofBoxes := watched{"shelves", "id", "id", "value"}, watched{"boxes", "id", "id", "value"}
	for _, c := range []struct {
		schema    []string
		statement string
		changes   int
		tables    []watched
	}{
		{nil, "DELETE FROM halls WHERE id = 1", 3 + 2 + 2, []watched{plain("shelves"), plain("boxes"), plain("labels")}},
		{nil, "DELETE FROM shelves WHERE id = 2", 2 + 1 + 1, []watched{plain("shelves"), plain("boxes"), plain("labels")}},
		{nil, "DELETE FROM halls", 3, []watched{plain("labels")}},
		{nested, "DELETE FROM halls WHERE id = 1", 4 + 2, []watched{plain("boxes"), plain("labels")}},
		{nested, "DELETE FROM shelves WHERE id = 3", 3 + 1, []watched{plain("boxes"), plain("labels")}},
		{nested, "DELETE FROM boxes WHERE id = 5", 2, []watched{plain("boxes"), plain("labels")}},
		{next, "DELETE FROM halls WHERE id = 1", 4, []watched{ofShelves}},
		{next, "DELETE FROM shelves WHERE id = 2", 3, []watched{ofShelves}},
		{spare, "DELETE FROM halls WHERE id = 1", 3, []watched{ofBoxes}},
		{spare, "DELETE FROM shelves WHERE id = 2", 2, []watched{ofBoxes}},
	} {
		s := newShop(t, slices.Concat(shelves, c.schema)...)
		section := ""
		for _, of := range c.tables {
			section += "  " + of.table + ": {entity: product, id: id, params: {value: " + of.value + "}}\n"
		}
		s.apply(section)
		s.covers(c.changes, c.statement, c.tables...)
		if got := s.apply(section); len(got) > 0 {
			t.Errorf("done a second time: %q", got)
		}
	}
}

// plain watches the ID of a table.
func plain(table string) watched { return watched{table, "id", "id", "id"} }

// A key that sets NULL ends a path: no other key refers to the column that it sets. So it may refer
// to a table that a delete in its own table deletes from.
func TestSetNullEndsAPath(t *testing.T) {
	t.Parallel()
	s := newShop(t,
		"CREATE TABLE brands (id INT PRIMARY KEY)",
		`CREATE TABLE products (id INT PRIMARY KEY, parent_id INT, cover_id INT, brand_id INT, FOREIGN KEY (parent_id) REFERENCES products (id) ON DELETE CASCADE,
			FOREIGN KEY (brand_id) REFERENCES brands (id) ON DELETE CASCADE)`,
		"CREATE TABLE media (id INT PRIMARY KEY, product_id INT, FOREIGN KEY (product_id) REFERENCES products (id) ON DELETE CASCADE)",
		"ALTER TABLE products ADD FOREIGN KEY (cover_id) REFERENCES media (id) ON DELETE SET NULL",
		"INSERT INTO brands VALUES (1), (2)",
		"INSERT INTO products VALUES (1, NULL, NULL, 1), (2, 1, NULL, NULL), (3, NULL, NULL, 2), (4, NULL, NULL, 2), (5, NULL, NULL, 2)",
		"INSERT INTO media VALUES (10, 1), (20, 2), (40, 4)",
		"UPDATE products SET cover_id = CASE id WHEN 1 THEN 10 WHEN 3 THEN 20 WHEN 4 THEN 40 WHEN 5 THEN 10 END",
	)
	s.apply("  products: {entity: product, id: id, params: {value: cover_id}}\n")
	of := watched{"products", "id", "id", "cover_id"}
	s.covers(1, "DELETE FROM media WHERE id = 40", of)
	s.covers(4, "DELETE FROM products WHERE id = 1", of)
	s.exec("INSERT INTO products VALUES (1, NULL, NULL, 1), (2, 1, NULL, NULL)", "INSERT INTO media VALUES (10, 1), (20, 2)",
		"UPDATE products SET cover_id = 20 WHERE id IN (3, 5)")
	s.covers(4, "DELETE FROM brands WHERE id = 1", of)
}

// While a delete passes a tree of another table, no row is inserted below its rows, at any isolation
// level. The test stops the trigger at a label, when it has read the others.
func TestNoRowsBelowATreeDuringADelete(t *testing.T) {
	t.Parallel()
	for _, level := range []string{"READ COMMITTED", "REPEATABLE READ"} {
		s := newShop(t, shelves...)
		s.apply("  labels: {entity: product, id: id, on: [delete], params: {value: value}}\n")
		other, deleter, writer := s.conn(), s.conn(), s.conn()
		for _, conn := range []*sql.Conn{deleter, writer} {
			s.do(conn, "SET SESSION TRANSACTION ISOLATION LEVEL "+level)
		}
		s.do(writer, "SET SESSION innodb_lock_wait_timeout = 1")
		s.do(other, "BEGIN", "UPDATE labels SET value = 6 WHERE id = 2")
		session, done := s.session(deleter), make(chan error, 1)
		go func() {
			_, err := deleter.ExecContext(t.Context(), "DELETE FROM halls WHERE id = 1")
			done <- err
		}()
		s.waits(session)
		for _, insert := range []string{"INSERT INTO shelves VALUES (9, NULL, 3)", "INSERT INTO boxes VALUES (9, 3)", "INSERT INTO labels VALUES (9, 1, 0)"} {
			if _, err := writer.ExecContext(t.Context(), insert); mysqlerr.Number(err) != mysqlerr.LockTimeout {
				t.Errorf("%s: %s while its parent is being deleted: %v", level, insert, err)
			}
		}
		s.do(other, "COMMIT")
		if err := <-done; err != nil {
			t.Errorf("%s: %v", level, err)
		}
		if rows := s.rows(); !slices.Contains(rows, `product 2 {"value": ["6"]}`) {
			t.Errorf("%s: rows %q", level, rows)
		}
	}
}

// needsLocks applies the captures. In MySQL it expects that the definer first needs privileges.
func (s *shop) needsLocks(c *capture.Capturer, rights ...string) {
	s.t.Helper()
	err := c.Apply(s.t.Context(), func(capture.Change) {})
	if s.Flavor == servers.KindMySQL {
		for _, right := range rights {
			if err == nil || !strings.Contains(err.Error(), "GRANT "+right) {
				s.t.Fatalf("%v, wanted %s", err, right)
			}
			s.grant(c.Definer, right)
		}
		err = c.Apply(s.t.Context(), func(capture.Change) {})
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// In MySQL the definer needs a privilege to lock the rows of each tree, one column is enough.
func TestDefinerLocksTrees(t *testing.T) {
	t.Parallel()
	s := newShop(t, shelves...)
	definer := s.account("INSERT ON cache_outbox", "SELECT, TRIGGER ON halls", "SELECT, TRIGGER ON shelves", "SELECT, TRIGGER ON boxes", "SELECT, TRIGGER ON labels")
	c := s.capturer("  labels: {entity: product, id: id, on: [delete], params: {value: id}}\n")
	c.Definer = definer
	s.needsLocks(c, "UPDATE (`shelf_id`) ON `"+s.Name+"`.`boxes`", "UPDATE (`hall_id`) ON `"+s.Name+"`.`shelves`")
	s.covers(2, "DELETE FROM halls WHERE id = 1", plain("labels"))
}

// A table with the name of the child, in another database, is another table: what deletes in it do is
// refused, and its key is no tree.
func TestParentOfTheSameNameElsewhere(t *testing.T) {
	t.Parallel()
	other := newShop(t, "CREATE TABLE boxes (id INT PRIMARY KEY, code INT NOT NULL UNIQUE)")
	s := newShop(t, "CREATE TABLE boxes (id INT PRIMARY KEY, core INT, CONSTRAINT of_core FOREIGN KEY (core) REFERENCES `"+other.Name+"`.boxes (code) ON DELETE CASCADE)",
		"CREATE TABLE labels (id INT PRIMARY KEY, box INT, CONSTRAINT of_box FOREIGN KEY (box) REFERENCES boxes (id) ON DELETE CASCADE)",
		"INSERT INTO boxes VALUES (1, NULL), (2, NULL)", "INSERT INTO labels VALUES (5, 1), (6, 2)")
	const section = "  labels: {entity: product, id: id}\n"
	_, err := s.capturer(section).Plan(t.Context())
	if err == nil || !strings.Contains(err.Error(), "its parent is in another database; write rows for that yourself and add 'cascades: {boxes.of_core: ignore delete}'") {
		t.Error(err)
	}
	s.apply(strings.Replace(section, "}\n", ", cascades: {boxes.of_core: ignore delete}}\n", 1))
	s.want("DELETE FROM boxes WHERE id = 1", "product 5")
	s.exec("DROP TABLE labels, boxes") // before the database of the parent
}
