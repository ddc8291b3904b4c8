package outbox_test

import (
	"database/sql"
	"fmt"
	"testing"

	"github.com/unstale/unstale/outbox"
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
			enqueue(t, env.db, products(rows)...)
		}
		for _, every := range []int{1000, 50, 7, 3, 2} { // which rows are the neighbours
			t.Run(fmt.Sprintf("misled %t, every %d", misled, every), func(t *testing.T) {
				holder, err := env.db.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelReadCommitted})
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = holder.Rollback() }() // it ends with the test
				if _, err := holder.Exec("UPDATE cache_outbox SET trace = 'mine' WHERE id MOD ? = 0", every); err != nil {
					t.Fatal(err)
				}
				before, waits := count(t, env.db, "cache_outbox"), lockWaits(t, env.db)
				s := openStore(t, env.dsn)
				some := limits
				some.Rows = 300
				c := claim(t, s, some)
				if err := c.Settle(t.Context(), outbox.Settlement{Done: ids(c.Rows)}); err != nil {
					t.Fatal(err)
				}
				if n := count(t, env.db, "cache_outbox"); n != before-300 || len(c.Rows) != 300 {
					t.Errorf("%d rows are left of %d, %d were claimed", n, before, len(c.Rows))
				}
				if n := lockWaits(t, env.db); n != waits {
					t.Errorf("%d waits for locks", n-waits)
				}
			})
		}
	}
}
