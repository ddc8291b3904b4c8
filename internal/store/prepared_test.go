package store_test

import (
	"database/sql"
	"fmt"
	"testing"

	"github.com/unstale/unstale/internal/store"
)

// A server that prepares no more statements, for its other clients have as many as it allows, is sent them as text.
func TestPassWithoutPreparedStatements(t *testing.T) {
	t.Parallel()
	env := ownMigrated(t)
	for _, limit := range []int{16382, 0} {
		enqueue(t, env.DB, products(10)...)
		if _, err := env.DB.ExecContext(t.Context(), fmt.Sprintf("SET GLOBAL max_prepared_stmt_count = %d", limit)); err != nil {
			t.Fatal(err)
		}
		s := openStore(t, env.DSN)
		before := executed(t, env.DB)
		if found, err := s.Waiting(t.Context()); !found || err != nil {
			t.Fatal(found, err)
		}
		c := claim(t, s, limits)
		entries := []store.Entry{{ID: c.Rows[0].ID, Entity: c.Rows[0].Entity, EntityID: c.Rows[0].EntityID}}
		if err := c.Settle(t.Context(), store.Settlement{Done: ids(c.Rows), Journal: entries}); err != nil {
			t.Fatal(err)
		}
		n := executed(t, env.DB) - before
		if limit > 0 && n < 4 || limit == 0 && n > 0 { // a poll, the claim, the journal, the removal
			t.Errorf("with %d at most, %d prepared statements were executed", limit, n)
		}
		if n := count(t, env.DB, "cache_outbox"); n != 0 || len(c.Rows) != 10 {
			t.Errorf("%d rows are left, %d were claimed", n, len(c.Rows))
		}
	}
}

// executed is how many prepared statements the server has executed.
func executed(t *testing.T, db *sql.DB) (n int) {
	t.Helper()
	var name string
	if err := db.QueryRowContext(t.Context(), "SHOW GLOBAL STATUS LIKE 'Com_stmt_execute'").Scan(&name, &n); err != nil {
		t.Fatal(err)
	}
	return n
}
