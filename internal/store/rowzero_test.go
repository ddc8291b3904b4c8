package store_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/internal/testenv"
)

// insertAt inserts a row with an ID that an administrator chose, 0 included.
func insertAt(t *testing.T, env *testenv.Database, id uint64) {
	t.Helper()
	conn, err := env.DB.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, statement := range []string{
		"SET sql_mode = CONCAT(@@sql_mode, ',NO_AUTO_VALUE_ON_ZERO')",
		fmt.Sprintf("INSERT INTO cache_outbox (id, entity, entity_id) VALUES (%d, 'product', '1')", id),
		"SET sql_mode = DEFAULT",
	} {
		if _, err := conn.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

// Rows with the least and the greatest ID are rows like any other: polls report them, and claims
// take them and the rows around them, whether scans are quick or slow.
func TestRowsAtBothEnds(t *testing.T) {
	t.Parallel()
	for _, slow := range []bool{false, true} {
		for _, id := range []uint64{0, math.MaxUint64 - 1, math.MaxUint64} {
			t.Run(fmt.Sprintf("slow %t, row %d", slow, id), func(t *testing.T) {
				t.Parallel()
				env := migrated(t)
				enqueue(t, env.DB, products(2)...)
				if id > 0 { // the last ones that the table gives out an ID for
					insertAt(t, env, 7)
				}
				insertAt(t, env, id)
				var s *store.Store
				if slow {
					s = slowStore(t, env)
				} else {
					s = openStore(t, env.DSN)
					s.EveryScanIsQuick()
				}
				want := 3
				if id > 0 {
					want = 4
				}
				for ; want > 0; want-- {
					if found, err := s.Waiting(t.Context()); !found || err != nil {
						t.Fatalf("waiting with %d rows: %t, %v", want, found, err)
					}
					few := limits
					few.Rows = 1
					c, err := s.Claim(t.Context(), few)
					if err != nil || c == nil {
						t.Fatalf("claimed %+v with %d rows, %v", c, want, err)
					}
					if err := c.Settle(t.Context(), store.Settlement{Done: ids(c.Rows)}); err != nil {
						t.Fatal(err)
					}
				}
				nothing(t, s)
				insertAt(t, env, 0) // as the only row
				s.ListAllAgain()
				take(t, s, 1)
				nothing(t, s)
			})
		}
	}
}
