package session_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/unstale/unstale/internal/session"
	"github.com/unstale/unstale/internal/storetest"
)

// In this release, a lookup that ONLY_FULL_GROUP_BY refuses still runs, with the same result for
// each ID as if it ran for that ID alone, and Ungrouped reports it.
func TestUngroupedLookup(t *testing.T) {
	t.Parallel()
	env := storetest.Migrated(t)
	for _, stmt := range []string{
		"CREATE TABLE listed (product INT, category INT, PRIMARY KEY (product, category))",
		"INSERT INTO listed VALUES (1, 7), (1, 9), (2, 8), (3, 9)",
	} {
		if _, err := env.DB.Exec(stmt); err != nil {
			t.Fatal(err)
		}
	}
	s := storetest.Open(t, env.DSN)
	ids := [][]string{{"1"}, {"2"}, {"3"}}
	for query, want := range map[string]string{
		"SELECT product, MAX(category) FROM listed WHERE product IN (?)":                                             "1140 1:9 2:8 3:9",
		"SELECT product, MAX(category), MIN(category) FROM listed WHERE product IN (?)":                              "1140 1:9:7 2:8:8 3:9:9",
		"SELECT product, CONCAT('x', category) FROM listed WHERE product IN (?) AND category <> 9 GROUP BY product":  "1055 1:x7 2:x8",
		"SELECT product, MAX(category) FROM listed WHERE product IN (?) GROUP BY product":                            "1:9 2:8 3:9",
		"SELECT product, MAX(category) OVER (PARTITION BY product) FROM listed WHERE product IN (?)":                 "1:9 1:9 2:8 3:9",
		"SELECT DISTINCT a.product, a.category FROM listed AS a WHERE a.product IN (?) ORDER BY a.product, category": "1:7 1:9 2:8 3:9",
	} {
		values := strings.Count(strings.Split(query, " FROM ")[0], "category")
		rows, err := s.Lookups.Lookup(t.Context(), query, ids, values)
		if err != nil {
			t.Errorf("%s: %v", query, err)
			continue
		}
		var got []string
		for _, row := range rows {
			got = append(got, strings.Join(row, ":"))
		}
		slices.Sort(got)
		refusal := ""
		if err := s.Lookups.Ungrouped(query); err != nil {
			_, text, _ := strings.Cut(err.Error(), "Error ")
			refusal = text[:len("1140 ")]
		}
		if all := refusal + strings.Join(got, " "); all != want {
			t.Errorf("%s: got %s, wanted %s", query, all, want)
		}
		mode, err := s.Lookups.Lookup(t.Context(), "SELECT 1, @@SESSION.sql_mode FROM DUAL WHERE 1 IN (?)", ids[:1], 1)
		if err != nil || !strings.HasPrefix(mode[0][1], "ONLY_FULL_GROUP_BY,STRICT_TRANS_TABLES") {
			t.Errorf("%s: the session is left with %v, %v", query, mode, err)
		}
		snapshot, err := s.Lookups.LookupSnapshot(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := snapshot.Lookup(t.Context(), query, ids, values); (err == nil) != (refusal == "") || err != nil && !session.IsStatementFault(err) {
			t.Errorf("%s: in a snapshot: %v", query, err)
		}
		if err := snapshot.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A snapshot does not see commits after its first read.
func TestLookupSnapshot(t *testing.T) {
	t.Parallel()
	env := storetest.Migrated(t)
	exec := func(stmt string) {
		t.Helper()
		if _, err := env.DB.Exec(stmt); err != nil {
			t.Fatal(err)
		}
	}
	exec("CREATE TABLE listed (product INT PRIMARY KEY, category INT)")
	exec("INSERT INTO listed VALUES (1, 7)")
	s := storetest.Open(t, env.DSN)
	snapshot, err := s.Lookups.LookupSnapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"[[1 7]]", "[[1 7]]"} {
		rows, err := snapshot.Lookup(t.Context(), "SELECT product, category FROM listed WHERE product IN (?)", [][]string{{"1"}}, 1)
		if got := fmt.Sprint(rows); err != nil || got != want {
			t.Errorf("got %s, %v, wanted %s", got, err, want)
		}
		exec("UPDATE listed SET category = category + 1")
	}
	if ids, err := snapshot.Select(t.Context(), "SELECT product, category FROM listed", 2); err != nil || fmt.Sprint(ids) != "[[1 7]]" {
		t.Error(ids, err)
	}
	if err := snapshot.Close(); err != nil {
		t.Error(err)
	}
}
