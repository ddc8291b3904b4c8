package journal_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/unstale/unstale/internal/journal"
	"github.com/unstale/unstale/internal/queue"
	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/internal/store/storetest"
	"github.com/unstale/unstale/outbox"
)

// readJournal returns the matching entries of each batch that matches q.
func readJournal(t *testing.T, s *store.Store, q journal.JournalQuery) (got []string) {
	t.Helper()
	err := s.Journal.ReadJournal(t.Context(), q, func(b journal.Batch, entries []journal.Entry) error {
		line := fmt.Sprint(b.Rows, ":")
		for _, e := range entries {
			line += " " + e.Entity + "=" + e.EntityID
		}
		got = append(got, line)
		return nil
	}, func(b journal.DamagedBatch) { got = append(got, fmt.Sprint(b.Rows, ": ", b.Err)) })
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
		var entries []journal.Entry
		for _, r := range c.Rows {
			entries = append(entries, journal.Entry{ID: r.ID, Entity: r.Entity, EntityID: r.EntityID, Keys: []string{"k"}})
		}
		if err := c.Settle(t.Context(), queue.Settlement{Done: storetest.IDs(c.Rows), Journal: entries}); err != nil {
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

	if got := readJournal(t, s, journal.JournalQuery{}); len(got) != 1203 || got[0] != "2: product=1 coupon=1" {
		t.Errorf("all: %d batches, the first %q", len(got), got[0])
	}
	if got := readJournal(t, s, journal.JournalQuery{Since: time.Hour}); len(got) != 1202 {
		t.Errorf("the last hour: %d batches", len(got))
	}
	for _, c := range []struct {
		q    journal.JournalQuery
		want []string
	}{
		{journal.JournalQuery{Entity: "product", EntityID: "1"}, []string{"2: product=1", "2: product=1 product=1"}},
		{journal.JournalQuery{Entity: "product"}, []string{"2: product=1", "1: product=2", "2: product=1 product=1"}},
		{journal.JournalQuery{Entity: "product", Since: time.Hour}, []string{"1: product=2", "2: product=1 product=1"}},
		{journal.JournalQuery{Entity: "stock", EntityID: "700"}, []string{"1: stock=700"}},
		{journal.JournalQuery{Entity: "stock", EntityID: "1200"}, nil},
	} {
		if got := readJournal(t, s, c.q); !slices.Equal(got, c.want) {
			t.Errorf("%+v: %q, wanted %q", c.q, got, c.want)
		}
	}
	if err := s.Journal.ReadJournal(t.Context(), journal.JournalQuery{EntityID: "1"}, nil, nil); err == nil {
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
		q    journal.JournalQuery
		want []string
	}{
		{journal.JournalQuery{}, []string{whole, damaged, whole}},
		{journal.JournalQuery{Entity: "product", EntityID: "1"}, []string{whole, damaged, whole}},
		{journal.JournalQuery{Entity: "stock"}, []string{damaged}},
		{journal.JournalQuery{Entity: "stock", EntityID: "1"}, nil},
	} {
		if got := readJournal(t, s, c.q); !slices.Equal(got, c.want) {
			t.Errorf("%+v: %q, wanted %q", c.q, got, c.want)
		}
	}
}
