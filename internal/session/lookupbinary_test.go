package session_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/unstale/unstale/internal/storetest"
)

// A lookup of BINARY(16) repeats the functions around its ?, and uses the index.
func TestLookupByFunctions(t *testing.T) {
	t.Parallel()
	env := storetest.Migrated(t)
	if _, err := env.DB.Exec("CREATE TABLE listed (product BINARY(16), category INT, PRIMARY KEY (product, category))"); err != nil {
		t.Fatal(err)
	}
	id := func(n int) string { return fmt.Sprintf("%032x", n+0xabc0) }
	for n := range 200 {
		if _, err := env.DB.Exec("INSERT INTO listed VALUES (UNHEX(?), ?), (UNHEX(?), ?)", id(n), n, id(n), n+1); err != nil {
			t.Fatal(err)
		}
	}
	s := storetest.Open(t, env.DSN)
	ids := [][]string{{id(1)}, {id(7)}, {id(500)}, {"no hex"}}
	for query, want := range map[string]string{
		"SELECT LOWER(HEX(product)), category FROM listed WHERE product IN (UNHEX(?))":                                             "1 2 7 8",
		"SELECT LOWER(HEX(product)), MAX(category) FROM listed WHERE product IN ( unhex( REPLACE(?, '-', '') ) ) GROUP BY product": "2 8",
	} {
		rows, err := s.Lookups.Lookup(t.Context(), query, ids, 1)
		if err != nil {
			t.Errorf("%s: %v", query, err)
			continue
		}
		var got []string
		for _, row := range rows {
			if row[0] != id(1) && row[0] != id(7) {
				t.Errorf("%s: ID %s", query, row[0])
			}
			got = append(got, row[1])
		}
		slices.Sort(got)
		if text := strings.Join(got, " "); text != want {
			t.Errorf("%s: got %s, wanted %s", query, text, want)
		}
	}
	var plan string
	if err := env.DB.QueryRow("EXPLAIN FORMAT = JSON SELECT LOWER(HEX(product)), category FROM listed WHERE product IN (UNHEX(?), UNHEX(?))", id(1), id(7)).Scan(&plan); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(plan, "range") {
		t.Errorf("it does not read ranges of an index: %s", plan)
	}
}
