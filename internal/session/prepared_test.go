package session_test

import (
	"database/sql"
	"fmt"
	"testing"

	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/internal/storetest"
)

// If a server cannot prepare more statements, since its other clients use up the limit, it gets
// them as text.
func TestPassWithoutPreparedStatements(t *testing.T) {
	t.Parallel()
	env := storetest.OwnMigrated(t)
	for _, limit := range []int{16382, 0} {
		storetest.Enqueue(t, env.DB, storetest.Products(10)...)
		if _, err := env.DB.ExecContext(t.Context(), fmt.Sprintf("SET GLOBAL max_prepared_stmt_count = %d", limit)); err != nil {
			t.Fatal(err)
		}
		s := storetest.Open(t, env.DSN)
		before := executed(t, env.DB)
		if found, err := s.Queue.Waiting(t.Context()); !found || err != nil {
			t.Fatal(found, err)
		}
		c := storetest.Claim(t, s, storetest.Limits)
		entries := []store.JournalEntry{{ID: c.Rows[0].ID, Entity: c.Rows[0].Entity, EntityID: c.Rows[0].EntityID}}
		if err := c.Settle(t.Context(), store.Settlement{Done: storetest.IDs(c.Rows), Journal: entries}); err != nil {
			t.Fatal(err)
		}
		n := executed(t, env.DB) - before
		// a poll, the claim, the journal, the removal
		if limit > 0 && n < 4 || limit == 0 && n > 0 {
			t.Errorf("with %d at most, %d prepared statements were executed", limit, n)
		}
		if n := storetest.Count(t, env.DB, "cache_outbox"); n != 0 || len(c.Rows) != 10 {
			t.Errorf("%d rows are left, %d were claimed", n, len(c.Rows))
		}
	}
}

// executed returns how many prepared statements the server has executed.
func executed(t *testing.T, db *sql.DB) (n int) {
	t.Helper()
	var name string
	if err := db.QueryRowContext(t.Context(), "SHOW GLOBAL STATUS LIKE 'Com_stmt_execute'").Scan(&name, &n); err != nil {
		t.Fatal(err)
	}
	return n
}
