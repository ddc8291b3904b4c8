package store_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/internal/storetest"
	"github.com/unstale/unstale/outbox"
)

// readJournal returns the matching entries of each batch that matches q.
func readJournal(t *testing.T, s *store.Store, q store.JournalQuery) (got []string) {
	t.Helper()
	err := s.Journal.ReadJournal(t.Context(), q, func(b store.Batch, entries []store.JournalEntry) error {
		line := fmt.Sprint(b.Rows, ":")
		for _, e := range entries {
			line += " " + e.Entity + "=" + e.EntityID
		}
		got = append(got, line)
		return nil
	}, func(b store.DamagedBatch) { got = append(got, fmt.Sprint(b.Rows, ": ", b.Err)) })
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// The journal is read by time and by entity. Hashes that collide, and bytes that look like a hash,
// do not cause false matches.
func TestReadJournal(t *testing.T) {
	t.Parallel()
	env := storetest.Migrated(t)
	s := storetest.Open(t, env.DSN)
	settle := func(rows ...outbox.Invalidation) {
		t.Helper()
		storetest.Enqueue(t, env.DB, rows...)
		c := storetest.Claim(t, s, storetest.Limits)
		var entries []store.JournalEntry
		for _, r := range c.Rows {
			entries = append(entries, store.JournalEntry{ID: r.ID, Entity: r.Entity, EntityID: r.EntityID, Keys: []string{"k"}})
		}
		if err := c.Settle(t.Context(), store.Settlement{Done: storetest.IDs(c.Rows), Journal: entries}); err != nil {
			t.Fatal(err)
		}
	}
	settle(outbox.Invalidation{Entity: "product", ID: "1"}, outbox.Invalidation{Entity: "coupon", ID: "1"})
	if _, err := env.DB.Exec("UPDATE cache_outbox_journal SET settled_at = settled_at - INTERVAL 2 HOUR"); err != nil {
		t.Fatal(err)
	}
	settle(outbox.Invalidation{Entity: "product", ID: "2"})
	for i := range 1200 { // several pages
		settle(outbox.Invalidation{Entity: "stock", ID: fmt.Sprint(i)})
	}
	settle(outbox.Invalidation{Entity: "product", ID: "1"}, outbox.Invalidation{Entity: "product", ID: "1"})

	if got := readJournal(t, s, store.JournalQuery{}); len(got) != 1203 || got[0] != "2: product=1 coupon=1" {
		t.Errorf("all: %d batches, the first %q", len(got), got[0])
	}
	if got := readJournal(t, s, store.JournalQuery{Since: time.Hour}); len(got) != 1202 {
		t.Errorf("the last hour: %d batches", len(got))
	}
	for _, c := range []struct {
		q    store.JournalQuery
		want []string
	}{
		{store.JournalQuery{Entity: "product", EntityID: "1"}, []string{"2: product=1", "2: product=1 product=1"}},
		{store.JournalQuery{Entity: "product"}, []string{"2: product=1", "1: product=2", "2: product=1 product=1"}},
		{store.JournalQuery{Entity: "product", Since: time.Hour}, []string{"1: product=2", "2: product=1 product=1"}},
		{store.JournalQuery{Entity: "stock", EntityID: "700"}, []string{"1: stock=700"}},
		{store.JournalQuery{Entity: "stock", EntityID: "1200"}, nil},
	} {
		if got := readJournal(t, s, c.q); !slices.Equal(got, c.want) {
			t.Errorf("%+v: %q, wanted %q", c.q, got, c.want)
		}
	}
	if err := s.Journal.ReadJournal(t.Context(), store.JournalQuery{EntityID: "1"}, nil, nil); err == nil {
		t.Error("an id without an entity is not an error")
	}
}

// A batch that cannot be read is reported if it may match the query, and does not stop the reading.
func TestReadJournalWithADamagedBatch(t *testing.T) {
	t.Parallel()
	env := storetest.Migrated(t)
	s := storetest.Open(t, env.DSN)
	journalled(t, s, env.DB, storetest.Position("A", 1), storetest.Position("A", 2), storetest.Position("A", 3))
	if _, err := env.DB.Exec("UPDATE cache_outbox_journal SET body = 'x' WHERE beat = 2"); err != nil {
		t.Fatal(err)
	}
	whole, damaged := "1: product=1", "1: journal body is damaged: unknown format"
	for _, c := range []struct {
		q    store.JournalQuery
		want []string
	}{
		{store.JournalQuery{}, []string{whole, damaged, whole}},
		{store.JournalQuery{Entity: "product", EntityID: "1"}, []string{whole, damaged, whole}},
		{store.JournalQuery{Entity: "stock"}, []string{damaged}},
		{store.JournalQuery{Entity: "stock", EntityID: "1"}, nil},
	} {
		if got := readJournal(t, s, c.q); !slices.Equal(got, c.want) {
			t.Errorf("%+v: %q, wanted %q", c.q, got, c.want)
		}
	}
}

// A batch is lost if another one has its ID, or if older ones are left. Healing and retention lose
// none.
func TestLost(t *testing.T) {
	t.Parallel()
	env := storetest.Migrated(t)
	s := storetest.Open(t, env.DSN)
	var had []store.Mark
	settle := func() {
		t.Helper()
		storetest.Enqueue(t, env.DB, storetest.Products(1)...)
		c := storetest.Claim(t, s, storetest.Limits)
		err := c.Settle(t.Context(), store.Settlement{
			Done: storetest.IDs(c.Rows), Journal: []store.JournalEntry{{ID: c.Rows[0].ID, Entity: "product", Keys: []string{"k"}}},
			Marks: store.Marks{Claimed: time.Now()},
		})
		if err != nil || len(c.Journaled) != 1 || c.Journaled[0].Sum == 0 {
			t.Fatalf("%+v, %v", c.Journaled, err)
		}
		had = append(had, c.Journaled...)
	}
	exec := func(query string) {
		t.Helper()
		if _, err := env.DB.ExecContext(t.Context(), query); err != nil {
			t.Fatal(err)
		}
	}
	want := func(what string, wantLost, wantNewest uint64) {
		t.Helper()
		lost, newest, err := store.Lost(t.Context(), s.Sessions.Side, had)
		if err != nil || lost != wantLost || newest.ID != wantNewest {
			t.Errorf("%s: lost %d, newest %d, %v; wanted %d, %d", what, lost, newest.ID, err, wantLost, wantNewest)
		}
	}
	want("no batch", 0, 0)
	for range 4 {
		settle()
	}
	want("all", 0, 4)
	exec("UPDATE cache_outbox_journal SET epoch = 'ANOTHER', beat = 100, born_us = 1")
	want("healed", 0, 4)
	exec("CREATE TABLE old LIKE cache_outbox_journal")
	exec("INSERT INTO old SELECT * FROM cache_outbox_journal WHERE id <= 2")
	exec("DELETE FROM cache_outbox_journal WHERE id <= 2")
	want("after retention", 0, 4)
	exec("INSERT INTO cache_outbox_journal (worker, row_count, map_version, hashes, body) VALUES ('web-1', 0, '', '', '')")
	_, newest, err := store.Lost(t.Context(), s.Sessions.Side, nil)
	if err != nil || newest.ID != 5 || newest.Sum == 0 {
		t.Fatalf("a batch without a timeline: %+v, %v", newest, err)
	}
	had = append(had, newest)
	want("a batch without a timeline", 0, 5)
	exec("DELETE FROM cache_outbox_journal")
	want("emptied", 0, 0)
	exec("INSERT INTO cache_outbox_journal SELECT * FROM old")
	want("an old copy", 3, 2)
	exec("ALTER TABLE cache_outbox_journal AUTO_INCREMENT = 3")
	known := had
	for range 4 {
		settle()
	}
	had = known
	want("an old copy with new batches", 3, 6)
	had = []store.Mark{{ID: 3}, {ID: 6}}
	want("only IDs are known", 0, 6)
	exec("UPDATE cache_outbox_journal SET id = id * 7 ORDER BY id DESC")
	want("new batches have other IDs", 0, 42) // the oldest has a greater one
	exec("INSERT INTO cache_outbox_journal SELECT * FROM old")
	want("new batches have other IDs, and old ones are left", 3, 42)
}

// A batch that a server gets late is not lost.
func TestLostComesLate(t *testing.T) {
	t.Parallel()
	env := storetest.Migrated(t)
	s := storetest.Open(t, env.DSN)
	insert := func(id int) error {
		_, err := env.DB.Exec("INSERT INTO cache_outbox_journal (id, worker, row_count, map_version, hashes, body) VALUES (?, 'web-1', 0, '', '', '')", id)
		return err
	}
	if err := insert(1); err != nil {
		t.Fatal(err)
	}
	late := make(chan error, 1)
	time.AfterFunc(time.Second, func() { late <- insert(2) })
	lost, newest, err := store.Lost(t.Context(), s.Sessions.Side, []store.Mark{{ID: 2}})
	if err := errors.Join(err, <-late); err != nil || lost != 0 || newest.ID != 2 {
		t.Errorf("lost %d, newest %d, %v", lost, newest.ID, err)
	}
}
