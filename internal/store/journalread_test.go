package store_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/outbox"
)

// readJournal returns what each batch that q is about has for it.
func readJournal(t *testing.T, s *store.Store, q store.JournalQuery) (got []string) {
	t.Helper()
	err := s.ReadJournal(t.Context(), q, func(b store.Batch, entries []store.Entry) error {
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

// The journal is read by time and by entity; hashes that collide, and bytes that look like one, find nothing more.
func TestReadJournal(t *testing.T) {
	t.Parallel()
	env := migrated(t)
	s := openStore(t, env.DSN)
	settle := func(rows ...outbox.Invalidation) {
		t.Helper()
		enqueue(t, env.DB, rows...)
		c := claim(t, s, limits)
		var journal []store.Entry
		for _, r := range c.Rows {
			journal = append(journal, store.Entry{ID: r.ID, Entity: r.Entity, EntityID: r.EntityID, Keys: []string{"k"}})
		}
		if err := c.Settle(t.Context(), store.Settlement{Done: ids(c.Rows), Journal: journal}); err != nil {
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
	if err := s.ReadJournal(t.Context(), store.JournalQuery{EntityID: "1"}, nil, nil); err == nil {
		t.Error("an id without an entity is not an error")
	}
}

// A batch that cannot be read is reported where the query may be about it, and holds nothing up.
func TestReadJournalWithADamagedBatch(t *testing.T) {
	t.Parallel()
	env := migrated(t)
	s := openStore(t, env.DSN)
	journalled(t, s, env.DB, position("A", 1), position("A", 2), position("A", 3))
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
