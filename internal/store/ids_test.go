package store_test

import (
	"fmt"
	"math"
	"testing"
)

// IDsLeft counts from the ID that the next row gets, on a table without a row as well.
func TestIDsLeft(t *testing.T) {
	t.Parallel()
	env := migrated(t)
	s := openStore(t, env.DSN)
	for _, c := range []struct{ id, want uint64 }{
		{0, math.MaxUint64 - 1}, {7, math.MaxUint64 - 8}, {math.MaxUint64 - 2, 1}, {math.MaxUint64 - 1, 0},
	} {
		if c.id > 0 {
			insertAt(t, env, c.id)
		}
		left, err := s.IDsLeft(t.Context())
		if err != nil || left["cache_outbox"] != c.want || left["cache_outbox_delayed"] != math.MaxUint64-1 || len(left) != 3 {
			t.Errorf("after row %d: %v, %v, wanted %d", c.id, left, err, c.want)
		}
		if st, err := s.Status(t.Context()); err != nil || fmt.Sprint(st.IDsLeft) != fmt.Sprint(left) {
			t.Errorf("status has %v, %v", st.IDsLeft, err)
		}
	}
}
