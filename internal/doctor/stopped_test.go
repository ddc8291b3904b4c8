package doctor_test

import (
	"database/sql"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/unstale/unstale/internal/capture"
	"github.com/unstale/unstale/internal/doctor"
	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/migrations"
)

// A stop is a way to write captured tables that stops a replica, as described in
// docs/capture.md#replication.
type stop struct {
	name   string
	set    string // in the writing session
	number string // of the error; empty: the replica follows
	write  func(w *testbed, session *sql.Conn)
}

var stops = []stop{
	{"a change that is not logged", "sql_log_bin = 0", "1032", func(w *testbed, session *sql.Conn) {
		w.on(session, "UPDATE products SET name = 'new name' WHERE id = 7")
	}},
	{"an ID that the replica gives to another row", "binlog_format = STATEMENT", "1062", func(w *testbed, session *sql.Conn) { w.interleave(session, "COMMIT") }},
	{"an ID that the replica does not have", "binlog_format = STATEMENT", "1032", func(w *testbed, session *sql.Conn) { w.interleave(session, "ROLLBACK") }},
	{"the default format", "", "", func(w *testbed, session *sql.Conn) {
		w.interleave(session, "COMMIT")
		w.interleave(session, "ROLLBACK")
	}},
}

var whole = []string{"SELECT id, entity_id, params FROM cache_outbox ORDER BY id", "SELECT id, worker FROM cache_outbox_journal ORDER BY id", "SELECT id, name FROM products ORDER BY id"}

// Each stop is detected and repaired by the statements of docs/operations.md, unchanged. Then the
// replica follows and has the same data as its source.
func TestReplicaThatHasStopped(t *testing.T) {
	t.Parallel()
	w := newWard(t)
	w.followShop()
	for _, s := range stops {
		session := w.conn(w.db)
		if s.set != "" {
			w.on(session, "SET SESSION "+s.set)
		}
		s.write(w, session)
		w.settle()
		if s.number == "" {
			testenv.Eventually(t, s.name+": the replica to follow", func() bool { return w.same(whole...) })
			continue
		}
		seen := ""
		testenv.Eventually(t, s.name+": the replica to stop", func() bool {
			// a START before is lost, and the error may change until then
			status := w.rows(w.follower, w.replicaVerb("SHOW")+" STATUS")[0]
			stopped := status["Replica_SQL_Running"] == "No" || status["Slave_SQL_Running"] == "No"
			seen = w.stopError()
			return stopped && seen != ""
		})
		if !strings.HasPrefix(seen, s.number+" ") || !strings.Contains(seen, "cache_outbox") {
			t.Errorf("%s: the replica stops with %s", s.name, seen)
		}
		w.repair()
		w.sql("UPDATE products SET name = CONCAT(name, '+') WHERE id = 1")
		w.settle()
		testenv.Eventually(t, s.name+": the replica to follow", func() bool { return w.same(whole...) })
	}
}

// followShop starts a replica with the outbox, the tables of the shop and their triggers.
func (w *testbed) followShop() {
	w.t.Helper()
	shop := []string{"INSERT INTO products VALUES (1, 'a'), (2, 'a'), (3, 'a'), (7, 'a')"}
	w.useMap(everything + "capture:\n  products: {entity: product, id: id}\n")
	w.sql(shop...)
	w.applyTriggers()
	w.follow()
	w.onFollower(w.replicaVerb("STOP"), "DROP TABLE cache_outbox", "CREATE TABLE products (id INT PRIMARY KEY, name TEXT)")
	w.onFollower(shop...)
	_, err := migrations.Up(w.t.Context(), w.follower.DB)
	if err == nil {
		c := w.capturer()
		c.DB = w.follower.DB
		err = c.Apply(w.t.Context(), func(capture.Change) {})
	}
	if err != nil {
		w.t.Fatal(err)
	}
	if w.db.Flavor == servers.KindMySQL { // otherwise IDs depend on the worker that is first
		w.onFollower("SET GLOBAL replica_parallel_workers = 1")
	}
	w.onFollower(w.replicaVerb("START"))
}

// interleave writes two rows in one statement. Another session takes an ID between theirs, and ends
// after the statement as end specifies.
func (w *testbed) interleave(session *sql.Conn, end string) {
	w.t.Helper()
	holder, other := w.conn(w.db), w.conn(w.db)
	w.on(holder, "BEGIN", "SELECT name FROM products WHERE id = 2 FOR UPDATE")
	done := make(chan error, 1)
	go func() {
		_, err := session.ExecContext(w.t.Context(), "UPDATE products SET name = CONCAT(name, '+') WHERE id IN (1, 2)")
		done <- err
	}()
	testenv.Eventually(w.t, "the statement to wait", func() bool {
		return w.rows(w.db, "SHOW GLOBAL STATUS LIKE 'Innodb_row_lock_current_waits'")[0]["Value"] == "1"
	})
	w.on(other, "BEGIN", "UPDATE products SET name = CONCAT(name, '+') WHERE id = 3")
	w.on(holder, "ROLLBACK")
	if err := <-done; err != nil {
		w.t.Fatal(err)
	}
	w.on(other, end)
}

// settle removes the rows of the outbox in a transaction with a row of the journal, as a worker
// does.
func (w *testbed) settle() {
	w.t.Helper()
	w.on(w.conn(w.db), "BEGIN", "INSERT INTO cache_outbox_journal (worker, row_count, map_version, hashes, body) VALUES ('web-1', 1, '', '', '')", "DELETE FROM cache_outbox", "COMMIT")
}

var sqlBlock = regexp.MustCompile("(?ms)^ *```sql\n(.*?)^ *```$")

// repairs returns the page's blocks for this engine.
func (w *testbed) repairs() (blocks []string) {
	w.t.Helper()
	page, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		w.t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(page), "\n## A replica that has stopped\n")
	text, _, _ = strings.Cut(text, "\n## ")
	of := strings.NewReplacer(" -- MariaDB: slave_exec_mode", "")
	other := "SHOW REPLICA STATUS"
	if w.db.Flavor == servers.KindMariaDB {
		of = strings.NewReplacer(" -- MariaDB: slave_exec_mode", "", "replica_exec_mode", "slave_exec_mode")
		other = "performance_schema"
	}
	for _, match := range sqlBlock.FindAllStringSubmatch(text, -1) {
		if !strings.Contains(match[1], other) {
			blocks = append(blocks, strings.TrimSpace(of.Replace(match[1])))
		}
	}
	return blocks
}

// repair runs the page's blocks on the replica, each in its own session.
func (w *testbed) repair() {
	w.t.Helper()
	blocks := w.repairs()
	if len(blocks) != 6 {
		w.t.Fatalf("the page has %d blocks: %q", len(blocks), blocks)
	}
	for _, block := range blocks {
		session := w.conn(w.follower)
		if strings.Contains(block, "'STRICT'") {
			testenv.Eventually(w.t, "the replica to catch up", func() bool { return w.same("SELECT id FROM cache_outbox_journal ORDER BY id") })
		}
		for statement := range strings.SplitSeq(block, ";") {
			// none are left from the source, which has none
			for _, left := range w.rows(w.follower, "SELECT id FROM cache_outbox") {
				statement = strings.Replace(statement, "4711", "4711, "+left["id"], 1)
			}
			if strings.TrimSpace(statement) != "" {
				w.on(session, statement)
			}
		}
	}
}

// stopError returns the number and the text of the error that stopped the replica, as the first
// block of the page shows them.
func (w *testbed) stopError() string {
	w.t.Helper()
	for _, r := range w.rows(w.follower, w.repairs()[0]) {
		if n := r["Last_SQL_Errno"]; n != "" && n != "0" { // MariaDB
			return n + " " + r["Last_SQL_Error"]
		}
		if n := r["last_error_number"]; n != "" {
			return n + " " + r["last_error_message"]
		}
	}
	return ""
}

// rows returns the result of a query.
func (w *testbed) rows(on *testenv.Database, query string) []map[string]string {
	w.t.Helper()
	rows, err := doctor.QueryRows(w.t.Context(), on.DB, query)
	if err != nil {
		w.t.Fatalf("%s: %v", query, err)
	}
	var all []map[string]string
	for _, r := range rows {
		all = append(all, r)
	}
	return all
}

// same reports whether replica and source return the same results.
func (w *testbed) same(queries ...string) bool {
	w.t.Helper()
	return !slices.ContainsFunc(queries, func(query string) bool {
		return !reflect.DeepEqual(w.rows(w.db, query), w.rows(w.follower, query))
	})
}

// conn returns a session that lasts until the end of the test.
func (w *testbed) conn(d *testenv.Database) *sql.Conn {
	w.t.Helper()
	conn, err := d.DB.Conn(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// on runs statements in a session.
func (w *testbed) on(session *sql.Conn, statements ...string) {
	w.t.Helper()
	for _, s := range statements {
		if _, err := session.ExecContext(w.t.Context(), s); err != nil {
			w.t.Fatalf("%s: %v", s, err)
		}
	}
}
