package store_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/internal/storetest"
)

// Any key is kept and found, and the table keeps the newest thousand for 30 days.
func TestTable(t *testing.T) {
	t.Parallel()
	env := storetest.Migrated(t)
	table := storetest.Open(t, env.DSN).Stale
	exec := func(query string, args ...any) {
		t.Helper()
		if _, err := env.DB.ExecContext(t.Context(), query, args...); err != nil {
			t.Fatal(err)
		}
	}
	long := strings.Repeat("\xff", 2000)
	for _, key := range []string{"shop:1", "\x00'\xff", long} {
		e := store.StaleEntry{Key: key, Row: 7, Entity: "product", EntityID: "1", Trace: "t", Epoch: "E", Number: 9, Leased: 1, Unlinked: 2, AfterMs: 1000, TTLMillis: 60_000, Repaired: true}
		if err := table.Add(t.Context(), e); err != nil {
			t.Fatal(err)
		}
		list, err := table.Of(t.Context(), key, 10)
		if err != nil || len(list) != 1 {
			t.Fatalf("%q: %+v, %v", key, list, err)
		}
		if list[0].FoundAt.IsZero() || list[0].Worker == "" {
			t.Errorf("%+v", list[0])
		}
		list[0].FoundAt, list[0].Worker = e.FoundAt, ""
		if e.Key = key[:min(len(key), 1024)]; list[0] != e {
			t.Errorf("got %+v, want %+v", list[0], e)
		}
	}
	exec("UPDATE cache_outbox_stale SET found_at = UTC_TIMESTAMP(6) - INTERVAL 2 HOUR WHERE name = 'shop:1'")
	exec("UPDATE cache_outbox_stale SET repaired = 0")
	exec("UPDATE cache_outbox_stale SET ttl_ms = 1, found_at = UTC_TIMESTAMP(6) - INTERVAL 1 SECOND WHERE name = ?", long[:1024])
	if n, err := table.Count(t.Context()); err != nil || n != (store.StaleCount{Hour: 2, Day: 3}) {
		t.Errorf("%+v, %v", n, err)
	}
	exec("UPDATE cache_outbox_stale SET found_at = UTC_TIMESTAMP(6) - INTERVAL 31 DAY WHERE name = 'shop:1'")
	count := func() (n int) {
		t.Helper()
		if err := env.DB.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM cache_outbox_stale").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	if err := table.Trim(t.Context()); err != nil || count() != 2 {
		t.Errorf("%d are left, %v", count(), err)
	}
	values := "('w', 'k', 1, '', '', '', '', 0, 0, 0, 0, 0, 0, 0)"
	exec("INSERT INTO cache_outbox_stale (worker, name, row_id, entity, entity_id, trace, epoch, beat, leased_us, unlinked_us, after_ms, ttl_ms, held, repaired) VALUES " +
		values + strings.Repeat(", "+values, 1009))
	if err := table.Trim(t.Context()); err != nil || count() != 1000 {
		t.Errorf("%d are left, %v", count(), err)
	}
	if list, err := table.Of(t.Context(), "shop:1", 10); err != nil || len(list) > 0 {
		t.Error(fmt.Sprint(list), err)
	}
}
