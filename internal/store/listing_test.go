package store_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/internal/storetest"
)

// A listing has exactly the rows that wait for a worker: rows, delayed rows that are due, and first
// sweeps. The rows may have the lowest and the greatest ID.
func TestList(t *testing.T) {
	t.Parallel()
	env := storetest.Migrated(t)
	s := storetest.Open(t, env.DSN)
	list := func() store.Listing {
		t.Helper()
		before := time.Now()
		l, err := s.Queue.List(t.Context())
		if err != nil || l.Began.Before(before) || l.Now.IsZero() {
			t.Fatalf("%+v, %v", l, err)
		}
		return l
	}
	if l := list(); len(l.Lists[store.ListedHot].Rows)+len(l.Lists[store.ListedDue].Rows)+len(l.Lists[store.ListedSweeps].Rows) != 0 {
		t.Errorf("of empty tables: %+v", l)
	}
	for _, query := range []string{
		"SET SESSION sql_mode = CONCAT(@@sql_mode, ',NO_AUTO_VALUE_ON_ZERO')",
		"INSERT INTO cache_outbox (id, entity, entity_id) VALUES (0, 'a', '1'), (7, 'a', '1')",
		"INSERT INTO cache_outbox_delayed (id, entity, entity_id, due_at) VALUES (3, 'a', '1', UTC_TIMESTAMP(6) - INTERVAL 1 MINUTE), (2, 'a', '1', UTC_TIMESTAMP(6) - INTERVAL 1 SECOND), (1, 'a', '1', UTC_TIMESTAMP(6) + INTERVAL 1 HOUR)",
		"INSERT INTO cache_outbox_sweeps (id, kind, name, swept_at) VALUES (5, 'pattern', 'a*', NULL), (6, 'pattern', 'b*', UTC_TIMESTAMP(6))",
	} {
		env.DB.SetMaxOpenConns(1)
		if _, err := env.DB.Exec(query); err != nil {
			t.Fatal(err)
		}
	}
	l := list()
	for table, want := range map[store.ListedTable][]uint64{store.ListedHot: {0, 7}, store.ListedDue: {3, 2}, store.ListedSweeps: {5}} {
		var ids []uint64
		for _, r := range l.Lists[table].Rows {
			ids = append(ids, r.ID)
		}
		if !slices.Equal(ids, want) || l.Lists[table].Last != l.Lists[table].Rows[len(want)-1].Place {
			t.Errorf("%s: %+v, wanted %v", table, l.Lists[table], want)
		}
	}
	if age := l.Now.Sub(l.Lists[store.ListedDue].Rows[0].At); age < time.Minute || age > time.Hour {
		t.Errorf("the first delayed row has been due for %s", age)
	}
}

// A full list also has the place of the last waiting row.
func TestListOfMany(t *testing.T) {
	t.Parallel()
	env := storetest.Migrated(t)
	s := storetest.Open(t, env.DSN)
	const rows = store.MaxListing + 500
	digits := "(SELECT 0 AS n UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4 UNION SELECT 5 UNION SELECT 6 UNION SELECT 7 UNION SELECT 8 UNION SELECT 9)"
	numbers := fmt.Sprintf("(SELECT a.n + 10*b.n + 100*c.n + 1000*d.n + 1 AS i FROM %[1]s a, %[1]s b, %[1]s c, %[1]s d) AS numbers WHERE i <= %d", digits, rows)
	for _, query := range []string{
		"INSERT INTO cache_outbox (id, entity, entity_id) SELECT i, 'a', '1' FROM " + numbers,
		"INSERT INTO cache_outbox_delayed (entity, entity_id, due_at) SELECT 'a', '1', UTC_TIMESTAMP(6) - INTERVAL i SECOND FROM " + numbers,
		"INSERT INTO cache_outbox_sweeps (id, kind, name) SELECT i, 'pattern', i FROM " + numbers,
	} {
		if _, err := env.DB.Exec(query); err != nil {
			t.Fatal(err)
		}
	}
	l, err := s.Queue.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for table, last := range map[store.ListedTable]uint64{store.ListedHot: rows, store.ListedDue: uint64(l.Now.UnixMicro()), store.ListedSweeps: rows} {
		if got := l.Lists[table]; len(got.Rows) != store.MaxListing || got.Last != last {
			t.Errorf("%s: %d rows, the last %d, wanted %d", table, len(got.Rows), got.Last, last)
		}
	}
}

// Rows are free if a claim would get one of them. Trying does not claim them.
func TestAnyFree(t *testing.T) {
	t.Parallel()
	env := storetest.Migrated(t)
	s := storetest.Open(t, env.DSN)
	free := func(ids ...uint64) bool {
		t.Helper()
		any, err := s.Queue.AnyFree(t.Context(), store.ListedHot, ids)
		if err != nil {
			t.Fatal(err)
		}
		return any
	}
	storetest.Enqueue(t, env.DB, storetest.Products(2)...)
	if !free(1) || !free(1, 2) || free(3) {
		t.Error("no session holds them, and the third does not exist")
	}
	c := storetest.Claim(t, storetest.Open(t, env.DSN), storetest.Limits) // finds both
	if len(c.Rows) != 2 {
		t.Errorf("%d rows are claimed", len(c.Rows))
	}
	storetest.Enqueue(t, env.DB, storetest.Products(1)...)
	if free(1) || free(1, 2) || !free(1, 2, 3) {
		t.Error("the first two are claimed")
	}
	if err := c.Release(); err != nil {
		t.Fatal(err)
	}
	if !free(1) || !free(2) {
		t.Error("they were released")
	}
	if _, err := env.DB.Exec("INSERT INTO cache_outbox_delayed (id, entity, entity_id, due_at) VALUES (1, 'a', '1', UTC_TIMESTAMP(6))"); err != nil {
		t.Fatal(err)
	}
	if any, err := s.Queue.AnyFree(t.Context(), store.ListedDue, []uint64{1}); err != nil || !any {
		t.Errorf("a delayed row: %t, %v", any, err)
	}
}
