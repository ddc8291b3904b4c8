package store_test

import (
	"database/sql"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/unstale/unstale/internal/session"
	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/internal/storetest"
)

func read(t *testing.T, s *store.Store) store.Figures {
	t.Helper()
	f, err := store.ReadFigures(t.Context(), s.Sessions)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// one returns the counts of a batch with a single row, in time.
func one() store.Counts {
	c := store.Counts{Batches: 1}
	c.Add(time.Millisecond)
	return c
}

// settleOne settles the first row with counts.
func settleOne(t *testing.T, s *store.Store, n store.Counts) error {
	t.Helper()
	c := storetest.Claim(t, s, store.ClaimLimits{Rows: 1, Bytes: 1 << 20, ParamsBytes: 1 << 10})
	return c.Settle(t.Context(), store.Settlement{Done: storetest.IDs(c.Rows), Counts: n, MapVersion: "v"})
}

// A batch is counted if its transaction commits, and otherwise not. Two workers add up.
func TestABatchCountsWithItsCommit(t *testing.T) {
	t.Parallel()
	env := storetest.Migrated(t)
	a, b := storetest.Open(t, env.DSN), storetest.Open(t, env.DSN)
	storetest.Enqueue(t, env.DB, storetest.Products(4)...)
	for _, s := range []*store.Store{a, b, a} {
		if err := settleOne(t, s, one()); err != nil {
			t.Fatal(err)
		}
	}
	tx, err := env.DB.Begin()
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Minutes.Add(t.Context(), tx, one()); err != nil {
		t.Fatal(err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	for _, w := range read(t, b).Windows {
		if w.Batches != 3 || w.Rows != 3 || w.Within100ms != 3 || w.Within10s != 3 || w.Dead != 0 {
			t.Errorf("%+v", w)
		}
	}
	if n := storetest.Count(t, env.DB, "cache_outbox_minutes WHERE worker IN ('"+a.ID+"', '"+b.ID+"')"); n < 2 || a.ID == b.ID {
		t.Errorf("%d rows of two workers", n)
	}
}

// Totals of checks replace those that were written before, and leave the counts of batches.
func TestNotesReplace(t *testing.T) {
	t.Parallel()
	env := storetest.Migrated(t)
	s := storetest.Open(t, env.DSN)
	now := store.MinuteAt(clock(t, env.DB))
	storetest.Enqueue(t, env.DB, storetest.Products(1)...)
	if err := settleOne(t, s, one()); err != nil {
		t.Fatal(err)
	}
	want := store.Checks{Sampled: 7, EntryBatches: 6, StaleBatches: 2, Checked: 12, WithEntry: 8, Stale: 3, Absent: 3, Unknown: 1, Repaired: 2}
	for _, c := range []store.Checks{{Sampled: 1, Stale: 9}, want, want} {
		if err := s.Minutes.NoteChecks(t.Context(), now, c); err != nil {
			t.Fatal(err)
		}
		if err := s.Minutes.NoteShadows(t.Context(), now, 5, 1); err != nil {
			t.Fatal(err)
		}
	}
	w := read(t, s).Windows[0]
	if w.Checks != want || w.Shadows != 5 || w.Confirmed != 1 || w.Batches != 1 {
		t.Errorf("%+v", w)
	}
	if w.WSampled != 7 || w.WStale != 3 { // no sample weighs less than itself
		t.Errorf("%+v", w)
	}
	// one of twelve checks is unknown, so 77 of 84 batches have weights
	if _, err := env.DB.Exec("UPDATE cache_outbox_minutes SET batches = 84"); err != nil {
		t.Fatal(err)
	}
	w = read(t, s).Windows[0]
	if w.WSampled != 77 || w.WEntryBatches != 66 || w.WStaleBatches != 22 || w.WKnown != 121 || w.WWithEntry != 88 || w.WStale != 33 || w.WWSampled != 847 || w.WWEntryBatches != 726 {
		t.Errorf("%+v", w)
	}
}

func clock(t *testing.T, db *sql.DB) (now time.Time) {
	t.Helper()
	if err := db.QueryRow("SELECT UTC_TIMESTAMP(6)").Scan(&now); err != nil {
		t.Fatal(err)
	}
	return now
}

// Folding keeps all sums of 30 days, in two workers that fold at the same time too. Older rows
// are deleted, and the table stays small.
func TestFoldKeepsTheSums(t *testing.T) {
	t.Parallel()
	env := storetest.Migrated(t)
	a, b := storetest.Open(t, env.DSN), storetest.Open(t, env.DSN)
	now := uint32(store.MinuteAt(clock(t, env.DB)))
	var rows []string
	for i := range uint32(3000) { // the last 50 hours, of two workers
		for w := range uint32(2) {
			batches, sampled := 1+(i*7+w)%400, (i+w)%9
			rows = append(rows, fmt.Sprintf("(%d, '%s', %d, %d, %d, %d, %d, %d, %d, %d, %d, %d, %d, %d, %d, %d, %d, %d, %d)",
				now-i, []string{a.ID, b.ID}[w], batches, 5*batches, 4*batches, 4*batches+1, 5*batches-1, i%3,
				sampled, sampled/2, sampled/4, 3*sampled, sampled, sampled/3, sampled, sampled, sampled/5, i%11, i%2))
		}
	}
	const into = "INSERT INTO cache_outbox_minutes (minute, worker, batches, rows_settled, within_100ms, within_1s, within_10s, dead, " +
		"sampled, entry_batches, stale_batches, checked, with_entry, stale, absent, unknown, repaired, shadow_reads, confirmed) VALUES "
	old := fmt.Sprintf(", (%d, '%s', 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1)", now-31*24*60, a.ID)
	if _, err := env.DB.Exec(into + strings.Join(rows, ",") + old); err != nil {
		t.Fatal(err)
	}
	before := read(t, a)
	failed := make(chan error, 2)
	for _, s := range []*store.Store{a, b} {
		go func() { failed <- s.Minutes.Fold(t.Context()) }()
	}
	for range 2 {
		if err := <-failed; err != nil {
			t.Error(err)
		}
	}
	same(t, before, read(t, a))
	if n := storetest.Count(t, env.DB, "cache_outbox_minutes"); n > 2*26*60+25 {
		t.Errorf("%d rows", n)
	}
	if n := storetest.Count(t, env.DB, "cache_outbox_minutes WHERE worker = ''"); n < 24 {
		t.Errorf("%d rows are folded", n)
	}
	// Rows of a folded hour that come later are added to it.
	late := fmt.Sprintf("(%d, 'late', 9, 9, 9, 9, 9, 9, 4, 4, 4, 4, 4, 4, 0, 0, 4, 1, 1)", now-2900)
	if _, err := env.DB.Exec(into + late); err != nil {
		t.Fatal(err)
	}
	before = read(t, a)
	if err := a.Minutes.Fold(t.Context()); err != nil {
		t.Fatal(err)
	}
	same(t, before, read(t, a))
	if n := storetest.Count(t, env.DB, "cache_outbox_minutes WHERE worker = 'late'"); n != 0 {
		t.Errorf("%d rows are not folded", n)
	}
}

// same compares the sums of 30 days; weighted ones are floating point. The windows of an hour and a
// day may move meanwhile.
func same(t *testing.T, before, after store.Figures) {
	t.Helper()
	x, y := before.Windows[2].Sums, after.Windows[2].Sums
	for _, pair := range [][2]*float64{
		{&x.WSampled, &y.WSampled}, {&x.WEntryBatches, &y.WEntryBatches}, {&x.WStaleBatches, &y.WStaleBatches}, {&x.WKnown, &y.WKnown},
		{&x.WWithEntry, &y.WWithEntry}, {&x.WStale, &y.WStale}, {&x.WWSampled, &y.WWSampled}, {&x.WWEntryBatches, &y.WWEntryBatches},
	} {
		if *pair[0] == 0 || math.Abs(*pair[0]-*pair[1]) > 1e-9**pair[0] {
			t.Errorf("%v is %v", *pair[0], *pair[1])
		}
		*pair[0], *pair[1] = 0, 0
	}
	if x != y {
		t.Errorf("%+v is\n%+v", x, y)
	}
}

// Rows that wait, and delayed ones, are late by their age; scheduled rows and repeats are not. They
// lower the share. Beyond a bound they are not counted.
func TestWaitingRowsAreMisses(t *testing.T) {
	t.Parallel()
	env := storetest.Migrated(t)
	s := storetest.Open(t, env.DSN)
	exec := func(query string) {
		t.Helper()
		if _, err := env.DB.Exec(query); err != nil {
			t.Fatal(err)
		}
	}
	storetest.Enqueue(t, env.DB, storetest.Products(1)...)
	if err := settleOne(t, s, one()); err != nil {
		t.Fatal(err)
	}
	exec(`INSERT INTO cache_outbox (entity, entity_id, created_at) VALUES ('e', '1', UTC_TIMESTAMP(6) + INTERVAL 1 DAY),
('e', '2', UTC_TIMESTAMP(6) - INTERVAL 5 SECOND), ('e', '3', UTC_TIMESTAMP(6) - INTERVAL 1 HOUR)`)
	exec(`INSERT INTO cache_outbox_delayed (entity, entity_id, created_at, due_at, first_id, repeated) VALUES
('e', '4', UTC_TIMESTAMP(6) - INTERVAL 1 HOUR, UTC_TIMESTAMP(6), 4, 0), ('e', '5', UTC_TIMESTAMP(6) - INTERVAL 1 HOUR, UTC_TIMESTAMP(6), 5, 1),
('e', '6', UTC_TIMESTAMP(6) - INTERVAL 1 HOUR, UTC_TIMESTAMP(6), 0, 0)`)
	f := read(t, s)
	if want := (store.Waiting{Over100ms: 3, Over1s: 3, Over10s: 2, Looked: 6}); f.Waiting != want {
		t.Errorf("%+v", f.Waiting)
	}
	for limit, want := range map[time.Duration]store.Share{100 * time.Millisecond: {1, 4}, time.Second: {1, 4}, 10 * time.Second: {1, 3}} {
		if got := f.Windows[0].Within(limit); got != want {
			t.Errorf("within %s: %+v", limit, got)
		}
	}
	exec("INSERT INTO cache_outbox (entity, entity_id) VALUES ('e', '7')" + strings.Repeat(", ('e', '7')", 10_000))
	if f := read(t, s); !f.Waiting.More || f.Waiting.Over10s < 2 {
		t.Errorf("%+v", f.Waiting)
	}
}

// While the table is missing, batches are settled, and Refused returns why they are not counted. A
// table that is locked delays one batch only.
func TestARefusalFailsNoBatch(t *testing.T) {
	t.Parallel()
	env := storetest.Migrated(t)
	storetest.Enqueue(t, env.DB, storetest.Products(4)...)
	s := storetest.Open(t, env.DSN)
	if _, err := env.DB.Exec("RENAME TABLE cache_outbox_minutes TO minutes_elsewhere"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := settleOne(t, s, one()); err != nil || s.Minutes.Refused() == nil {
			t.Fatalf("%v, refused by %v", err, s.Minutes.Refused())
		}
	}
	if _, err := env.DB.Exec("RENAME TABLE minutes_elsewhere TO cache_outbox_minutes"); err != nil {
		t.Fatal(err)
	}
	s = storetest.Open(t, env.DSN)
	conn, err := env.DB.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.ExecContext(t.Context(), "LOCK TABLES cache_outbox_minutes READ"); err != nil {
		t.Fatal(err)
	}
	if err := settleOne(t, s, one()); !session.IsContention(err) || s.Minutes.Refused() == nil {
		t.Errorf("%v", err)
	}
	for range 2 {
		if err := settleOne(t, s, one()); err != nil {
			t.Errorf("after the first: %v", err)
		}
	}
}
