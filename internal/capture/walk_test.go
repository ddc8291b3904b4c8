package capture_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/unstale/unstale/internal/capture"
	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/internal/session"
	"github.com/unstale/unstale/internal/testenv"
)

// walk returns a Walk of a table by a section, as the program does: it sends text, and not prepared
// statements.
func (s *shop) walk(section, table string) *capture.Walk {
	s.t.Helper()
	dsn, err := mysql.ParseDSN(s.DSN)
	testenv.Must(s.t, err)
	db, err := session.Open(session.Config{MySQL: dsn, Worker: "test"})
	testenv.Must(s.t, err)
	s.t.Cleanup(func() { _ = db.Close() })
	return s.walkBy(db.DB(), section, table)
}

func (s *shop) walkBy(db *sql.DB, section, table string) *capture.Walk {
	s.t.Helper()
	w, err := s.capturer(section).NewWalk(s.t.Context(), db, table)
	testenv.Must(s.t, err)
	w.Progress = func(context.Context, capture.Walked) error { return nil }
	return w
}

// A walk inserts a row for each row of a table, whatever its primary key is, over several pages.
func TestWalk(t *testing.T) {
	t.Parallel()
	s := newShop(t, "CREATE TABLE numbers (n INT PRIMARY KEY)",
		"INSERT INTO numbers WITH RECURSIVE many (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM many WHERE n < 900) SELECT n FROM many")
	section, of := "", map[string]string{}
	values := map[string]string{ // on both sides of a sign, of 2^63, of a byte and of a letter
		"BIGINT":          "n - 600",
		"BIGINT UNSIGNED": "CAST(9223372036854775000 AS UNSIGNED) + 2 * n",
		"VARCHAR(20)":     "CONCAT(IF(n % 2, 'é', 'A'), n)",
		"CHAR(9) CHARACTER SET latin1 COLLATE latin1_swedish_ci": "CONCAT(IF(n % 2, 'é', 'A'), n)",
		"BINARY(8)":     "UNHEX(LPAD(HEX(n * 7919), 16, 'F0'))",
		"VARBINARY(20)": "UNHEX(HEX(n * 7919))",
		"DATETIME(6)":   "'2026-01-01' + INTERVAL n * 1234567 MICROSECOND",
		"TIMESTAMP(3)":  "'2026-03-29' + INTERVAL n * 17 SECOND",
		"DATE":          "'2026-01-01' + INTERVAL n DAY",
		"TIME":          "SEC_TO_TIME((n - 400) * 1000)",
	}
	if s.Flavor == servers.KindMariaDB {
		values["UUID"] = "CONCAT('12345678-1234-1234-1234-', LPAD(HEX(n * 7919), 12, '0'))"
		values["INET6"] = "CONCAT('2001:db8::', HEX(n * 7))"
	}
	for column, value := range values {
		table := fmt.Sprint("t", len(of))
		of[table] = column
		s.exec(fmt.Sprintf("CREATE TABLE %s (a %s NOT NULL, b INT, id INT AUTO_INCREMENT UNIQUE, category_id INT, PRIMARY KEY (a, b))", table, column),
			fmt.Sprintf("INSERT INTO %s (a, b, category_id) SELECT %s, part, n FROM numbers, (SELECT -1 AS part UNION SELECT 1 UNION SELECT 2) AS parts", table, value))
		section += "  " + table + ": {entity: product, id: id, on: [update], params: {category_id: category_id}}\n"
	}
	s.exec("CREATE TABLE zero (a DATE NOT NULL PRIMARY KEY, id INT)")
	conn := s.conn()
	s.do(conn, "SET SESSION sql_mode = ''", "INSERT INTO zero VALUES ('0000-00-00', 1), ('2026-00-00', 2), ('2026-01-00', 3)")
	section += "  zero: {entity: product, id: id, on: [update]}\n"
	s.apply(section)
	if done, err := s.walk(section, "zero").Run(t.Context()); err != nil || done.Read != 3 || len(s.rows()) != 3 {
		t.Errorf("incomplete dates: %+v, %v", done, err)
	}
	i := 0
	for table, column := range of {
		w := s.walk(section, table)
		if i++; i%2 == 0 { // prepared
			w = s.walkBy(s.DB, section, table)
		}
		done, err := w.Run(t.Context())
		if err != nil || done.Read != 2703 || done.Rows != 2703 {
			t.Errorf("%s: %+v, %v", column, done, err)
		}
		rows := s.rows()
		if len(rows) > 0 && (!strings.HasPrefix(rows[0], "product ") || !strings.Contains(rows[0], `{"category_id": ["`)) {
			t.Errorf("%s: the row %s", column, rows[0])
		}
		slices.Sort(rows)
		if n := len(slices.Compact(rows)); n != 2703 {
			t.Errorf("%s: %d different rows", column, n)
		}
	}
}

// A walk inserts what the captures would: nothing without an ID, and a row of each capture.
func TestWalkOfSeveralCaptures(t *testing.T) {
	t.Parallel()
	s := newShop(t, "CREATE TABLE `it's` (`the id` INT PRIMARY KEY, parent INT)")
	const section = "  it's: [{entity: product, id: \"CONCAT('x', {row}.`the id`)\"}, {entity: category, id: parent, on: [update]}]\n"
	s.apply(section)
	s.exec("INSERT INTO `it's` VALUES (1, NULL), (2, 7)")
	s.rows()
	if done, err := s.walk(section, "it's").Run(t.Context()); err != nil || done.Read != 2 || done.Rows != 3 {
		t.Errorf("%+v, %v", done, err)
	}
	if rows, want := s.rows(), []string{"product x1", "product x2", "category 7"}; !slices.Equal(rows, want) {
		t.Errorf("rows %q, wanted %q", rows, want)
	}
}

// While workers have enough rows, a walk waits. An error of Progress ends it.
func TestWalkWaitsForWorkers(t *testing.T) {
	t.Parallel()
	s := newShop(t, "CREATE TABLE products (id INT PRIMARY KEY)")
	const section = "  products: {entity: product, id: id}\n"
	s.apply(section)
	s.exec("INSERT INTO products WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 900) SELECT i FROM n",
		"INSERT INTO cache_outbox (entity, entity_id) SELECT 'product', CONCAT(p.id, q.id) FROM products AS p, (SELECT id FROM products LIMIT 5) AS q")
	w, waited := s.walk(section, "products"), false
	w.Progress = func(_ context.Context, done capture.Walked) error {
		if waited = waited || done.Waits; done.Waits {
			s.exec("DELETE FROM cache_outbox")
		}
		return nil
	}
	if done, err := w.Run(t.Context()); err != nil || done.Rows != 900 || !waited {
		t.Errorf("%+v, %v, waited: %t", done, err, waited)
	}
	w.Progress = func(context.Context, capture.Walked) error { return context.Canceled }
	if done, err := w.Run(t.Context()); !errors.Is(err, context.Canceled) || done.Read != 0 {
		t.Errorf("%+v, %v", done, err)
	}
}

// A row that MySQL refuses is counted and named, and the others have theirs.
func TestWalkOverFaults(t *testing.T) {
	t.Parallel()
	s := newShop(t, "CREATE TABLE products (id INT PRIMARY KEY, n INT)")
	const section = "  products: {entity: product, id: \"CONCAT({row}.id, REPEAT('x', {row}.n))\"}\n"
	s.exec("INSERT INTO products WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 900) SELECT i, IF(i IN (7, 700), 300, 0) FROM n")
	s.apply(section)
	done, err := s.walk(section, "products").Run(t.Context())
	if err == nil || !strings.Contains(err.Error(), "no row for `id` = \"7\" of products: ") || !strings.Contains(err.Error(), "1406") || done.Faults != 2 || done.Read != 900 || done.Rows != 898 {
		t.Errorf("%+v, %v", done, err)
	}
	rows := s.rows()
	slices.Sort(rows)
	if n := len(slices.Compact(rows)); n != 898 {
		t.Errorf("%d different rows", n)
	}
}

// A table that is not covered, or cannot be read in pages, is refused with the way out.
func TestWalkRefuses(t *testing.T) {
	t.Parallel()
	s := newShop(t, "CREATE TABLE products (id INT PRIMARY KEY)", "CREATE TABLE nokey (id INT NOT NULL)", "CREATE TABLE sizes (id ENUM('b', 'a') PRIMARY KEY)")
	const section = "  products: {entity: product, id: id}\n  nokey: {entity: product, id: id}\n  sizes: {entity: product, id: id}\n"
	refuses := func(table, why string) {
		t.Helper()
		if _, err := s.capturer(section).NewWalk(t.Context(), s.DB, table); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v, wanted %s", table, err, why)
		}
	}
	refuses("products", "the trigger AFTER INSERT on products is missing, so writes still leave no row; run 'unstale capture apply' first")
	s.apply(section)
	refuses("nokey", "nokey has no primary key to read it by; invalidate its keys by a pattern instead")
	refuses("sizes", "since `id` is of the type enum; invalidate")
	refuses("others", "the map does not capture others")
}
