package docs

import (
	"database/sql"
	"database/sql/driver"
	"strings"
	"testing"

	"github.com/unstale/unstale/internal/mysqlerr"
	"github.com/unstale/unstale/internal/schema"
	"github.com/unstale/unstale/internal/testenv"
)

// The highest ID of a row whose table can still insert another row without an explicit ID, and
// error numbers.
const (
	lastID    = "18446744073709551614"
	noMoreIDs = 1467 // ER_AUTOINC_READ_FAILED
	signaled  = 1644 // ER_SIGNAL_EXCEPTION
)

// inserts has a statement for each table with generated IDs.
var inserts = map[string]string{
	"cache_outbox":         "INSERT INTO cache_outbox (entity, entity_id) VALUES ('product', '1')",
	"cache_outbox_delayed": "INSERT INTO cache_outbox_delayed (entity, entity_id, due_at) VALUES ('product', '1', UTC_TIMESTAMP() + INTERVAL 1 HOUR)",
	"cache_outbox_dead": "INSERT INTO cache_outbox_dead (entity, entity_id, created_at, first_id, reason, error, map_version) " +
		"VALUES ('product', '1', UTC_TIMESTAMP(), 0, 'unknown_entity', '', '')",
}

// testIDs uses up the IDs of each table. status and doctor report them, the steps of
// docs/operations.md repair them, and the triggers on that page prevent a repetition.
func testIDs(t *testing.T, program string) {
	server, cache := testenv.OwnMySQL(t), testenv.OwnRedis(t)
	run(t, testenv.OpenDB(t, server.DSN("")), "CREATE DATABASE shop", "CREATE TABLE shop.product_categories (product_id INT, category_id INT)",
		"CREATE TABLE shop.products (id INT PRIMARY KEY, name TEXT)", "INSERT INTO shop.products VALUES (1, '')")
	dsn := server.TCPDSN("shop")
	call(t, program, dsn, "migrate", "up")
	db := testenv.OpenDB(t, dsn)
	worker := start(t, program, dsn, "redis://"+cache.Addr())
	says := func(wanted int, text string, args ...string) {
		t.Helper()
		var code int
		var said string
		worker.until(text, func() bool {
			code, said = exit(t, program, dsn, args...)
			return strings.Contains(said, text)
		})
		if code != wanted {
			t.Errorf("%q: exit code %d, wanted %d\n%s", args, code, wanted, said)
		}
	}
	says(0, "nothing is stale: ", "status")
	says(0, "no insert has chosen a high ID", "doctor", "--check", "ids")

	chosen := func(insert string) []string { return []string{"SET insert_id = " + lastID, insert} }
	run(t, db, chosen(inserts["cache_outbox_delayed"])...)
	says(4, "unknown: table cache_outbox_delayed has no ID left, so every insert into it fails (1467)", "status")
	run(t, db, chosen(inserts["cache_outbox_dead"])...)
	// No worker can settle this row, because no ID is left for its repeat.
	run(t, db, chosen(inserts["cache_outbox"])...)
	for table, insert := range inserts {
		fails(t, db, insert, noMoreIDs)
		says(3, "unknown too: table "+table+" has no ID left", "status") // behind the dead letter
		says(1, "table "+table+" has no ID left", "doctor", "--check", "ids")
	}

	for _, part := range []string{"UPDATE cache_outbox_delayed SET id", "SELECT COUNT(*) FROM cache_outbox WHERE id > "} {
		steps := statements(onlyBlock(t, operationsPage, "sql", part))
		if strings.HasPrefix(steps[0], "SELECT") {
			worker.until("the high row is delivered", func() bool { return value(t, db, steps[0]) == "0" })
		}
		// The steps tell the operator to repeat a statement that fails with 1205.
		worker.until("the steps of the page", func() bool {
			_, err := firstError(t, db, steps)
			if err != nil && mysqlerr.Number(err) != mysqlerr.LockTimeout {
				t.Fatal(err)
			}
			return err == nil
		})
	}
	for _, insert := range inserts {
		run(t, db, insert)
	}
	worker.stop()
	worker = start(t, program, dsn, "redis://"+cache.Addr())
	run(t, db, "UPDATE cache_outbox_dead SET died_at = died_at - INTERVAL 1 HOUR")
	call(t, program, dsn, "dead", "discard", "--all")
	says(0, "nothing is stale: ", "status")
	says(0, "no insert has chosen a high ID", "doctor", "--check", "ids")
	testRefusedIDs(t, db)
	says(0, "its tables are as the migrations left them", "doctor", "--check", "schema")
}

// testRefusedIDs creates the triggers of the page: they refuse a chosen ID, and nothing else.
func testRefusedIDs(t *testing.T, db *sql.DB) {
	t.Helper()
	text := onlyBlock(t, operationsPage, "sql", "CREATE TRIGGER cache_outbox_ids").text
	text = strings.NewReplacer("DELIMITER $$\n", "", "DELIMITER ;\n", "").Replace(text)
	triggers := strings.Split(strings.TrimSuffix(text, "$$\n"), "$$\n")
	for i, table := range []string{"cache_outbox", "cache_outbox_delayed"} {
		if triggers[i] != schema.RefuseIDs(table) {
			t.Fatalf("%s has\n%s\nwanted\n%s", operationsPage, triggers[i], schema.RefuseIDs(table))
		}
		run(t, db, triggers[i], inserts[table])
		fails(t, db, strings.NewReplacer("(entity", "(id, entity", "VALUES (", "VALUES (7, ").Replace(inserts[table]), signaled)
		fails(t, db, inserts[table], signaled, "SET insert_id = "+lastID)
	}
	run(t, db, "CREATE TRIGGER captured AFTER UPDATE ON products FOR EACH ROW "+inserts["cache_outbox"], "UPDATE products SET name = 'x'")
	fails(t, db, "UPDATE products SET name = 'y'", signaled, "SET insert_id = "+lastID)
}

// fails runs statement after others, and checks that it fails with the expected error.
func fails(t *testing.T, db *sql.DB, statement string, wanted uint16, before ...string) {
	t.Helper()
	if at, err := firstError(t, db, append(before, statement)); at != statement || mysqlerr.Number(err) != wanted {
		t.Errorf("%s: %v, wanted error %d of %s", at, err, wanted, statement)
	}
}

// firstError runs statements in one session up to the first that fails, and returns it. The session
// ends, since it may have an insert_id.
func firstError(t *testing.T, db *sql.DB, statements []string) (string, error) {
	t.Helper()
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Raw(func(any) error { return driver.ErrBadConn }) }()
	for _, s := range statements {
		if _, err := conn.ExecContext(t.Context(), s); err != nil {
			return s, err
		}
	}
	return "", nil
}
