package store_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/internal/storetest"
)

// Rows with the lowest and the greatest ID are ordinary rows: polls report them, and claims take
// them and the rows around them, whether scans are quick or slow.
func TestRowsAtBothEnds(t *testing.T) {
	t.Parallel()
	for _, slow := range []bool{false, true} {
		for _, id := range []uint64{0, math.MaxUint64 - 1, math.MaxUint64} {
			t.Run(fmt.Sprintf("slow %t, row %d", slow, id), func(t *testing.T) {
				t.Parallel()
				env := storetest.Migrated(t)
				storetest.Enqueue(t, env.DB, storetest.Products(2)...)
				if id > 0 { // the last IDs that the table assigns
					storetest.InsertAt(t, env, 7)
				}
				storetest.InsertAt(t, env, id)
				var s *store.Store
				if slow {
					s = slowStore(t, env)
				} else {
					s = storetest.Open(t, env.DSN)
					s.Queue.EveryScanIsQuick()
				}
				want := 3
				if id > 0 {
					want = 4
				}
				for ; want > 0; want-- {
					if found, err := s.Queue.Waiting(t.Context()); !found || err != nil {
						t.Fatalf("waiting with %d rows: %t, %v", want, found, err)
					}
					few := storetest.Limits
					few.Rows = 1
					c, err := s.Queue.Claim(t.Context(), few)
					if err != nil || c == nil {
						t.Fatalf("claimed %+v with %d rows, %v", c, want, err)
					}
					if err := c.Settle(t.Context(), store.Settlement{Done: storetest.IDs(c.Rows)}); err != nil {
						t.Fatal(err)
					}
				}
				nothing(t, s)
				storetest.InsertAt(t, env, 0) // as the only row
				s.Queue.ListAllAgain()
				take(t, s, 1)
				nothing(t, s)
			})
		}
	}
}
