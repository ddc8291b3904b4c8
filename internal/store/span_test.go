package store_test

import (
	"database/sql"
	"fmt"
	"testing"

	"github.com/unstale/unstale/internal/store"
)

// Rows leave in spans, one by one where they are too scattered, and never is a neighbour touched: each row that another
// transaction holds stands between rows of the claim, and nobody waits, whatever the statistics say.
func TestRemovalLeavesNeighboursAlone(t *testing.T) {
	t.Parallel()
	for _, misled := range []bool{false, true} {
		env := ownMigrated(t)
		const rows = 2000
		if misled {
			pretendEmpty(t, env, rows)
		} else {
			enqueue(t, env.DB, products(rows)...)
		}
		for _, every := range []int{1000, 50, 7, 3, 2} { // which rows are the neighbours
			t.Run(fmt.Sprintf("misled %t, every %d", misled, every), func(t *testing.T) {
				holder, err := env.DB.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelReadCommitted})
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = holder.Rollback() }() // it ends with the test
				if _, err := holder.Exec("UPDATE cache_outbox SET trace = 'mine' WHERE id MOD ? = 0", every); err != nil {
					t.Fatal(err)
				}
				before, waits := count(t, env.DB, "cache_outbox"), lockWaits(t, env.DB)
				s := openStore(t, env.DSN)
				some := limits
				some.Rows = 300
				c := claim(t, s, some)
				if err := c.Settle(t.Context(), store.Settlement{Done: ids(c.Rows)}); err != nil {
					t.Fatal(err)
				}
				if n := count(t, env.DB, "cache_outbox"); n != before-300 || len(c.Rows) != 300 {
					t.Errorf("%d rows are left of %d, %d were claimed", n, before, len(c.Rows))
				}
				if n := lockWaits(t, env.DB); n != waits {
					t.Errorf("%d waits for locks", n-waits)
				}
			})
		}
	}
}

// A few rows leave in one statement, also where MySQL would refuse to delete them as ranges, since its statistics say
// that a scan is cheaper: at a light load they say so half of the time.
func TestFewRowsLeaveInOneStatement(t *testing.T) {
	t.Parallel()
	env := ownMigrated(t)
	const rows = 10
	pretendEmpty(t, env, rows)
	for _, n := range []int{1, 2, 5} {
		s := openStore(t, env.DSN)
		few := limits
		few.Rows = n
		c := claim(t, s, few)
		before := deletes(t, env.DB)
		if err := c.Settle(t.Context(), store.Settlement{Done: ids(c.Rows)}); err != nil {
			t.Fatal(err)
		}
		if sent := deletes(t, env.DB) - before; sent != 1 || len(c.Rows) != n {
			t.Errorf("%d rows left in %d statements", len(c.Rows), sent)
		}
	}
}

// deletes counts the statements of either kind that the server was sent, those that it refused too.
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
