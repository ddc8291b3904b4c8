package session_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/unstale/unstale/internal/session"
	"github.com/unstale/unstale/internal/storetest"
)

// A lookup of several keys with a limit per key fails if one of them has more rows. Other lookups
// keep the session.
func TestLookupUpTo(t *testing.T) {
	t.Parallel()
	env := storetest.Migrated(t)
	for _, stmt := range []string{
		"CREATE TABLE numbers (n INT PRIMARY KEY)",
		"INSERT INTO numbers VALUES (0)" + strings.Repeat(", (%d)", 299),
	} {
		var n []any
		for i := range strings.Count(stmt, "%d") {
			n = append(n, i+1)
		}
		if _, err := env.DB.Exec(fmt.Sprintf(stmt, n...)); err != nil {
			t.Fatal(err)
		}
	}
	s := storetest.Open(t, env.DSN)
	connection := func() string {
		t.Helper()
		rows, err := s.Lookups.Lookup(t.Context(), "SELECT 1, CONNECTION_ID() FROM DUAL WHERE 1 IN (?)", [][]string{{"1"}}, 1)
		if err != nil {
			t.Fatal(err)
		}
		return rows[0][1]
	}
	const query = "SELECT i.n, v.n FROM numbers AS i, numbers AS v WHERE i.n IN (?) AND v.n <= i.n ORDER BY i.n, v.n"
	for _, c := range []struct {
		ids        [][]string
		each, want int // want 0: it is refused
	}{
		{[][]string{{"99"}, {"50"}, {"98"}}, 100, 250},
		{[][]string{{"99"}, {"100"}, {"50"}}, 100, 0},
		{[][]string{{"100"}}, 100, 0},
		{[][]string{{"100"}, {"299"}}, 0, 401},
	} {
		before := connection()
		rows, err := s.Lookups.LookupUpTo(t.Context(), query, c.ids, 1, c.each)
		var many *session.LookupManyError
		if len(rows) != c.want || errors.As(err, &many) != (c.want == 0) || err != nil && many == nil {
			t.Errorf("%v, %d: %d rows, %v", c.ids, c.each, len(rows), err)
		}
		if after := connection(); c.want > 0 && after != before {
			t.Errorf("%v, %d: session %s follows %s", c.ids, c.each, after, before)
		}
	}
}
