package store_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/unstale/unstale/internal/storetest"
)

// IDsLeft counts from the ID of the next row, even on a table without rows.
func TestIDsLeft(t *testing.T) {
	t.Parallel()
	env := storetest.Migrated(t)
	s := storetest.Open(t, env.DSN)
	for _, c := range []struct{ id, want uint64 }{
		{0, math.MaxUint64 - 1}, {7, math.MaxUint64 - 8}, {math.MaxUint64 - 2, 1}, {math.MaxUint64 - 1, 0},
	} {
		if c.id > 0 {
			storetest.InsertAt(t, env, c.id)
		}
		left, err := s.Overview.IDsLeft(t.Context())
		if err != nil || left["cache_outbox"] != c.want || left["cache_outbox_delayed"] != math.MaxUint64-1 || len(left) != 3 {
			t.Errorf("after row %d: %v, %v, wanted %d", c.id, left, err, c.want)
		}
		if st, err := s.Overview.Status(t.Context()); err != nil || fmt.Sprint(st.IDsLeft) != fmt.Sprint(left) {
			t.Errorf("status has %v, %v", st.IDsLeft, err)
		}
	}
}
