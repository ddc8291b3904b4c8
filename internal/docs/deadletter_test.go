package docs

import (
	"database/sql"
	"testing"

	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/migrations"
	"github.com/unstale/unstale/outbox"
)

const bury = `INSERT INTO cache_outbox_dead (entity, entity_id, created_at, first_id, reason, error, map_version)
VALUES ('unknown', ?, UTC_TIMESTAMP(6), 0, ?, '', '')`

// The page's retry of dead letters holds off what would be buried in the middle of it, which would be deleted without
// having been put back.
func TestRetryHoldsOffNewDeadLetters(t *testing.T) {
	t.Parallel()
	db := testenv.MySQL(t).DB
	if _, err := migrations.Up(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	for id, reason := range map[string]string{"1": "unknown_entity", "2": "lookup_failed", "3": "unknown_entity"} {
		if _, err := db.ExecContext(t.Context(), bury, id, reason); err != nil {
			t.Fatal(err)
		}
	}
	retry := statements(onlyBlock(t, page, "sql", "START TRANSACTION"))
	operator, worker := connect(t, db), connect(t, db)
	exec := func(conn *sql.Conn, query string, args ...any) error {
		_, err := conn.ExecContext(t.Context(), query, args...)
		return err
	}
	if err := exec(worker, "SET innodb_lock_wait_timeout = 1"); err != nil {
		t.Fatal(err)
	}
	for _, s := range retry[:len(retry)-2] { // up to DELETE
		if err := exec(operator, s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
	if err := exec(worker, bury, "4", "unknown_entity"); !outbox.IsContention(err) {
		t.Errorf("a row is buried in the middle of the retry: %v", err)
	}
	for _, s := range retry[len(retry)-2:] {
		if err := exec(operator, s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
	if err := exec(worker, bury, "4", "unknown_entity"); err != nil {
		t.Error(err)
	}
	want(t, db, "SELECT GROUP_CONCAT(entity_id ORDER BY entity_id) FROM cache_outbox", "1,3")
	want(t, db, "SELECT GROUP_CONCAT(entity_id ORDER BY entity_id) FROM cache_outbox_dead", "2,4")
}

func connect(t *testing.T, db *sql.DB) *sql.Conn {
	t.Helper()
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}
