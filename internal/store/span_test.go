package store_test

import (
	"database/sql"
	"fmt"
	"testing"

	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/internal/storetest"
)

// Rows are deleted in spans, or one by one if they are too scattered, and neighbors are never
// touched. Regardless of the statistics, no session waits: between any two rows of the claim is a
// row that another transaction holds.
func TestRemovalLeavesNeighboursAlone(t *testing.T) {
	t.Parallel()
	for _, misled := range []bool{false, true} {
		env := storetest.OwnMigrated(t)
		const rows = 2000
		if misled {
			pretendEmpty(t, env, rows)
		} else {
			storetest.Enqueue(t, env.DB, storetest.Products(rows)...)
		}
		for _, every := range []int{1000, 50, 7, 3, 2} { // every n-th row is locked elsewhere
			t.Run(fmt.Sprintf("misled %t, every %d", misled, every), func(t *testing.T) {
				holder, err := env.DB.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelReadCommitted})
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = holder.Rollback() }() // it ends with the test
				if _, err := holder.Exec("UPDATE cache_outbox SET trace = 'mine' WHERE id MOD ? = 0", every); err != nil {
					t.Fatal(err)
				}
				before, waits := storetest.Count(t, env.DB, "cache_outbox"), lockWaits(t, env.DB)
				s := storetest.Open(t, env.DSN)
				some := storetest.Limits
				some.Rows = 300
				c := storetest.Claim(t, s, some)
				if err := c.Settle(t.Context(), store.Settlement{Done: storetest.IDs(c.Rows)}); err != nil {
					t.Fatal(err)
				}
				if n := storetest.Count(t, env.DB, "cache_outbox"); n != before-300 || len(c.Rows) != 300 {
					t.Errorf("%d rows are left of %d, %d were claimed", n, before, len(c.Rows))
				}
				if n := lockWaits(t, env.DB); n != waits {
					t.Errorf("%d waits for locks", n-waits)
				}
			})
		}
	}
}

// A few rows are deleted in one statement, even if MySQL would refuse to delete them as ranges
// because its statistics show a scan to be cheaper. At a light load, that is so half of the time.
func TestFewRowsLeaveInOneStatement(t *testing.T) {
	t.Parallel()
	env := storetest.OwnMigrated(t)
	const rows = 10
	pretendEmpty(t, env, rows)
	for _, n := range []int{1, 2, 5} {
		s := storetest.Open(t, env.DSN)
		few := storetest.Limits
		few.Rows = n
		c := storetest.Claim(t, s, few)
		before := deletes(t, env.DB)
		if err := c.Settle(t.Context(), store.Settlement{Done: storetest.IDs(c.Rows)}); err != nil {
			t.Fatal(err)
		}
		if sent := deletes(t, env.DB) - before; sent != 1 || len(c.Rows) != n {
			t.Errorf("%d rows left in %d statements", len(c.Rows), sent)
		}
	}
}

// deletes counts the statements of either kind that were sent to the server, including those that
// it refused.
func deletes(t *testing.T, db *sql.DB) (sum int) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), "SHOW GLOBAL STATUS WHERE Variable_name IN ('Com_delete', 'Com_delete_multi')")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var name string
		var n int
		if err := rows.Scan(&name, &n); err != nil {
			t.Fatal(err)
		}
		sum += n
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return sum
}
