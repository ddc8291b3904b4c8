package capture_test

import (
	"database/sql"
	"slices"
	"testing"

	"github.com/unstale/unstale/internal/mysqlerr"
	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/internal/testenv"
)

// do runs statements in a session.
func (s *shop) do(conn *sql.Conn, statements ...string) {
	s.t.Helper()
	for _, statement := range statements {
		if _, err := conn.ExecContext(s.t.Context(), statement); err != nil {
			s.t.Fatalf("%s: %v", statement, err)
		}
	}
}

// session returns the ID of a session.
func (s *shop) session(conn *sql.Conn) (id int) {
	s.t.Helper()
	if err := conn.QueryRowContext(s.t.Context(), "SELECT CONNECTION_ID()").Scan(&id); err != nil {
		s.t.Fatal(err)
	}
	return id
}

// waits returns when a session waits for a lock on a row.
func (s *shop) waits(session int) {
	s.t.Helper()
	testenv.Eventually(s.t, "the session waits for a lock", func() (waits bool) {
		s.exec("DO SLEEP(0.11)") // InnoDB caches the list of transactions for 0.1 s.
		err := s.DB.QueryRow("SELECT COUNT(*) > 0 FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT' AND trx_mysql_thread_id = ?", session).Scan(&waits)
		return err == nil && waits
	})
}

// A parent is deleted, replaced or given a new key, while another transaction changes its children.
// The outbox rows are for the changed children, even at READ COMMITTED, and in trees.
func TestCascadesBesideOtherWrites(t *testing.T) {
	t.Parallel()
	s := newShop(t,
		"CREATE TABLE brands (id INT PRIMARY KEY)",
		"CREATE TABLE products (id INT PRIMARY KEY, brand_id INT, category_id INT, FOREIGN KEY (brand_id) REFERENCES brands (id) ON DELETE CASCADE)",
		"CREATE TABLE shelves (id INT PRIMARY KEY)",
		"CREATE TABLE places (id INT PRIMARY KEY, shelf_id INT, category_id INT, FOREIGN KEY (shelf_id) REFERENCES shelves (id) ON UPDATE CASCADE)",
		"CREATE TABLE categories (id INT PRIMARY KEY, parent_id INT, FOREIGN KEY (parent_id) REFERENCES categories (id) ON DELETE CASCADE)",
		"INSERT INTO brands VALUES (1), (2)", "INSERT INTO categories VALUES (1, NULL), (2, 1), (3, 2), (11, NULL), (12, 11), (13, 12)",
		"INSERT INTO brands VALUES (10), (20)", "INSERT INTO products VALUES (1, 1, 7), (2, 2, 7), (10, 10, 7), (20, 20, 7)", "INSERT INTO shelves VALUES (1), (2)", "INSERT INTO places VALUES (1, 1, 7), (2, 2, 7)",
	)
	s.apply("  products: {entity: product, id: id, on: [delete], params: {category_id: category_id}}\n" +
		"  places: {entity: product, id: id, on: [update], watch: [shelf_id], params: {category_id: category_id}}\n" +
		"  categories: {entity: category, id: id, on: [delete]}\n")
	for i, level := range []string{"READ COMMITTED", "REPEATABLE READ"} {
		brand, tree := []string{"1", "2"}[i], []string{"1", "11"}[i]
		other, deleter := s.conn(), s.conn()
		s.do(deleter, "SET SESSION TRANSACTION ISOLATION LEVEL "+level)
		session := s.session(deleter)
		for _, c := range []struct{ change, remove, row string }{
			{"UPDATE products SET category_id = 9 WHERE id = " + brand, "DELETE FROM brands WHERE id = " + brand, "product " + brand + ` {"category_id": ["9"]}`},
			{"INSERT INTO categories VALUES (" + tree + "4, " + tree + " + 2)", "DELETE FROM categories WHERE id = " + tree, "category " + tree + "4"},
			{"UPDATE products SET category_id = 8 WHERE id = " + brand + "0", "REPLACE INTO brands SELECT " + brand + "0", "product " + brand + `0 {"category_id": ["8"]}`},
			{"UPDATE places SET category_id = 9 WHERE id = " + brand, "UPDATE shelves SET id = id + 10 WHERE id = " + brand, "product " + brand + ` {"category_id": ["9"]}`},
		} {
			s.do(other, "BEGIN", c.change)
			done := make(chan error, 1)
			go func() {
				_, err := deleter.ExecContext(t.Context(), c.remove)
				done <- err
			}()
			s.waits(session)
			s.do(other, "COMMIT")
			if err := <-done; err != nil {
				t.Errorf("%s: %s: %v", level, c.remove, err)
			}
			if rows := s.rows(); !slices.Contains(rows, c.row) {
				t.Errorf("%s: %s after %s: rows %q, wanted %s", level, c.remove, c.change, rows, c.row)
			}
		}
	}
}

// LOCK TABLES also locks the tables that triggers write. In MySQL no other session can access the
// outbox meanwhile.
func TestLockTables(t *testing.T) {
	t.Parallel()
	s := newShop(t, products)
	s.apply(productCapture)
	importer, application := s.conn(), s.conn()
	s.do(importer, "LOCK TABLES products WRITE", "INSERT INTO products (id) VALUES (1)")
	s.do(application, "SET lock_wait_timeout = 1, innodb_lock_wait_timeout = 1")
	const insert = "INSERT INTO cache_outbox (entity, entity_id) VALUES ('product', '9')"
	_, err := application.ExecContext(t.Context(), insert)
	if s.Flavor == servers.KindMySQL && mysqlerr.Number(err) != mysqlerr.LockTimeout || s.Flavor == servers.KindMariaDB && err != nil {
		t.Errorf("an insert beside LOCK TABLES: %v", err)
	}
	s.do(importer, "UNLOCK TABLES")
	s.do(application, insert)
}

// At the end of summer time, one hour occurs twice. Two times in it have the same text, and are a
// change nevertheless.
func TestTheHourThatComesTwice(t *testing.T) {
	t.Parallel()
	s := newShop(t, "CREATE TABLE offers (id INT PRIMARY KEY, until TIMESTAMP NULL, later TIMESTAMP NULL)")
	s.apply("  offers: {entity: product, id: id, watch: [until]}\n")
	conn := s.conn()
	s.do(conn, "INSERT INTO mysql.time_zone (use_leap_seconds) VALUES ('N')", "SET @zone = LAST_INSERT_ID()",
		"INSERT INTO mysql.time_zone_name (name, time_zone_id) VALUES ('"+s.Name+"', @zone)",
		"INSERT INTO mysql.time_zone_transition_type (time_zone_id, transition_type_id, `offset`, is_dst, abbreviation) VALUES (@zone, 0, 7200, 1, 'S'), (@zone, 1, 3600, 0, 'W')",
		"INSERT INTO mysql.time_zone_transition (time_zone_id, transition_time, transition_type_id) VALUES (@zone, 1700000000, 0), (@zone, 1792890000, 1)",
		"SET time_zone = '"+s.Name+"'", // which the server keeps from then on
	)
	for _, table := range []string{"time_zone", "time_zone_name", "time_zone_transition_type", "time_zone_transition"} {
		s.do(conn, "DELETE FROM mysql."+table+" WHERE time_zone_id = @zone")
	}
	s.do(conn, "INSERT INTO offers VALUES (1, FROM_UNIXTIME(1792888200), NULL)")
	s.do(conn, "SET time_zone = '+00:00'", "UPDATE offers SET later = until + INTERVAL 1 HOUR", "SET time_zone = '"+s.Name+"'")
	var text, laterText string
	var apart int
	if err := conn.QueryRowContext(t.Context(), "SELECT CAST(until AS CHAR), CAST(later AS CHAR), UNIX_TIMESTAMP(later) - UNIX_TIMESTAMP(until) FROM offers").
		Scan(&text, &laterText, &apart); err != nil || text != laterText || apart != 3600 {
		t.Fatalf("%s and %s, %d seconds apart: %v", text, laterText, apart, err)
	}
	s.rows()
	update := "UPDATE offers SET until = later"
	if s.Flavor == servers.KindMySQL { // which goes by the text there, but takes an offset
		update = "UPDATE offers SET until = '2026-10-25 01:30:00+00:00'"
	}
	for _, want := range []int{1, 0} {
		s.do(conn, update)
		if rows := s.rows(); len(rows) != want {
			t.Errorf("an hour later: rows %q, wanted %d", rows, want)
		}
	}
	s.do(conn, "SET time_zone = '+00:00'")
}
