package store_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/internal/storetest"
	"github.com/unstale/unstale/outbox"
)

// More claims the rows that were committed since the claim, with any ID, and no row twice. Settle
// settles them too, and Release releases them.
func TestClaimMore(t *testing.T) {
	t.Parallel()
	env := storetest.Migrated(t)
	if _, err := env.DB.Exec("ALTER TABLE cache_outbox AUTO_INCREMENT = 100"); err != nil {
		t.Fatal(err)
	}
	one, two := storetest.Open(t, env.DSN), storetest.Open(t, env.DSN)
	one.Queue.EveryScanIsQuick()
	more := func(c *store.Claim, l store.ClaimLimits) []uint64 {
		t.Helper()
		next, err := c.More(t.Context(), l)
		if err != nil {
			t.Fatal(err)
		}
		if next == nil {
			return nil
		}
		if next.Unseen.IsZero() {
			t.Error("the last claim left out no row")
		}
		return storetest.IDs(next.Rows)
	}
	claim := func(want int) *store.Claim {
		t.Helper()
		c := storetest.Claim(t, one, storetest.Limits)
		if !c.TookAll() || len(c.Rows) != want {
			t.Fatalf("%d rows are claimed, all: %v", len(c.Rows), c.TookAll())
		}
		return c
	}
	storetest.Enqueue(t, env.DB, storetest.Products(2)...)
	c := claim(2)
	if got := more(c, storetest.Limits); got != nil {
		t.Errorf("claimed %v again", got)
	}
	storetest.Enqueue(t, env.DB, storetest.Products(1)...)
	if _, err := env.DB.Exec("INSERT INTO cache_outbox (id, entity, entity_id) VALUES (5, 'product', 'late')"); err != nil {
		t.Fatal(err)
	}
	if got := more(c, storetest.Limits); !slices.Equal(got, []uint64{5, 102}) || !c.TookAll() {
		t.Errorf("claimed %v, all: %v", got, c.TookAll())
	}
	if err := c.Release(); err != nil {
		t.Fatal(err)
	}

	c = claim(4)
	storetest.Enqueue(t, env.DB, storetest.Products(3)...)
	few := storetest.Limits
	few.Rows = 5
	if got := more(c, few); !slices.Equal(got, []uint64{103}) || c.TookAll() {
		t.Errorf("claimed %v of five rows, all: %v", got, c.TookAll())
	}
	claimed := storetest.Claim(t, two, storetest.Limits)
	if got := storetest.IDs(claimed.Rows); !slices.Equal(got, []uint64{104, 105}) {
		t.Errorf("another session claimed %v", got)
	}
	if err := claimed.Release(); err != nil {
		t.Fatal(err)
	}
	if err := c.Settle(t.Context(), store.Settlement{Done: []uint64{5, 100, 101, 103}}); err != nil {
		t.Fatal(err)
	}
	claimed = storetest.Claim(t, two, storetest.Limits)
	if got := storetest.IDs(claimed.Rows); !slices.Equal(got, []uint64{102, 104, 105}) {
		t.Errorf("%v are left", got)
	}
	if err := claimed.Release(); err != nil {
		t.Fatal(err)
	}
}

// A claim skips the rows in Pass, and a claim with Only takes these rows alone. This holds for
// cache_outbox from its start and beyond the head, where other rows stay unlocked, and for delayed
// rows.
func TestClaimPassesOver(t *testing.T) {
	t.Parallel()
	for _, from := range []string{"hot", "slow", "delayed"} {
		t.Run(from, func(t *testing.T) {
			t.Parallel()
			env := storetest.Migrated(t)
			one, two := storetest.Open(t, env.DSN), storetest.Open(t, env.DSN)
			storetest.Enqueue(t, env.DB, storetest.Products(20)...)
			claimOf := one.Queue.Claim
			claimTwo := two.Queue.Claim
			switch from {
			case "slow":
				one.Queue.EveryScanIsSlow()
				two.Queue.EveryScanIsSlow()
			case "delayed":
				if _, err := env.DB.Exec("INSERT INTO cache_outbox_delayed (id, entity, entity_id, due_at) SELECT id, entity, entity_id, UTC_TIMESTAMP(6) - INTERVAL 1 HOUR FROM cache_outbox"); err != nil {
					t.Fatal(err)
				}
				claimOf, claimTwo = one.Queue.ClaimDue, two.Queue.ClaimDue
			}
			heavy := []uint64{7, 3, 4, 20, 1}
			l := storetest.Limits
			l.Pass = heavy
			rest, err := claimOf(t.Context(), l)
			if err != nil || rest == nil {
				t.Fatal(rest, err)
			}
			if got := storetest.IDs(rest.Rows); len(got) != 15 || slices.ContainsFunc(got, func(id uint64) bool { return slices.Contains(heavy, id) }) {
				t.Fatalf("claimed %v", got)
			}
			settle := func() {
				if err := rest.Settle(t.Context(), store.Settlement{Done: storetest.IDs(rest.Rows)}); err != nil {
					t.Fatal(err)
				}
			}
			// MariaDB keeps the index entries that a claim has skipped locked.
			if from == "delayed" {
				settle()
			}
			l = storetest.Limits
			l.Only = []uint64{4, 20, 5, 99}
			named, err := claimTwo(t.Context(), l)
			if err != nil || named == nil {
				t.Fatal(named, err)
			}
			if got := slices.Sorted(slices.Values(storetest.IDs(named.Rows))); !slices.Equal(got, []uint64{4, 20}) {
				t.Errorf("claimed %v; 5 is claimed by another session or deleted", got)
			}
			if err := named.Settle(t.Context(), store.Settlement{Done: storetest.IDs(named.Rows)}); err != nil {
				t.Fatal(err)
			}
			if from != "delayed" {
				settle()
			}
			left, err := claimTwo(t.Context(), storetest.Limits)
			if err != nil || left == nil {
				t.Fatal("the skipped rows are lost", err)
			}
			if got := slices.Sorted(slices.Values(storetest.IDs(left.Rows))); !slices.Equal(got, []uint64{1, 3, 7}) {
				t.Errorf("claimed %v", got)
			}
			if err := left.Release(); err != nil {
				t.Fatal(err)
			}
			l = storetest.Limits
			l.Pass = heavy
			if none, err := claimOf(t.Context(), l); none != nil || err != nil {
				t.Errorf("claimed %v, %v", none, err)
			}
			all, err := claimOf(t.Context(), storetest.Limits)
			if err != nil || all == nil || len(all.Rows) != 3 {
				t.Fatalf("the session that skipped them finds %v, %v", all, err)
			}
			if err := all.Release(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// Parameters that a claim leaves unread are neither fetched nor counted. Left names the rows that
// the byte limit leaves out.
func TestClaimLeavesLargeParameters(t *testing.T) {
	t.Parallel()
	env := storetest.Migrated(t)
	s := storetest.Open(t, env.DSN)
	for i, kib := range []int{40, 1, 9, 3, 3} {
		if _, err := env.DB.Exec("INSERT INTO cache_outbox (entity, entity_id, params) VALUES ('product', ?, CONCAT('{\"a\":\"', REPEAT('x', ?), '\"}'))", fmt.Sprint(i), kib<<10); err != nil {
			t.Fatal(err)
		}
	}
	c := storetest.Claim(t, s, store.ClaimLimits{Rows: 100, Bytes: 6 << 10, ParamsBytes: 64 << 10, Large: 8 << 10})
	var got []string
	for _, r := range c.Rows {
		got = append(got, fmt.Sprintf("%s:%d:%v", r.EntityID, len(r.Params)>>10, r.Unread()))
	}
	if want := "[0:0:true 1:1:false 2:0:true 3:3:false]"; fmt.Sprint(got) != want || !slices.Equal(c.Left, []uint64{5}) {
		t.Errorf("claimed %v, left %v; wanted %s", got, c.Left, want)
	}
	if err := c.Release(); err != nil {
		t.Fatal(err)
	}
}

// A batch with many names is several rows of the journal. A search finds the names in any of them,
// and healing covers all of them.
func TestJournalOfManyNames(t *testing.T) {
	t.Parallel()
	env := storetest.Migrated(t)
	s := storetest.Open(t, env.DSN)
	storetest.Enqueue(t, env.DB, outbox.Invalidation{Entity: "product", ID: "1"}, outbox.Invalidation{Entity: "product", ID: "2"})
	c := storetest.Claim(t, s, storetest.Limits)
	keys := make([]string, 45_000)
	for i := range keys {
		keys[i] = fmt.Sprintf("shop:key:%d", i)
	}
	entries := []store.JournalEntry{
		{ID: 1, Entity: "product", EntityID: "1", Keys: []string{"shop:small"}, WrittenMicros: 5},
		{ID: 2, Entity: "product", EntityID: "2", Keys: keys, HoldMillis: 7, WrittenMicros: 6},
	}
	at := store.Position{Epoch: "E", N: 9}
	if err := c.Settle(t.Context(), store.Settlement{Done: storetest.IDs(c.Rows), Journal: entries, Position: at, Born: 11, Marks: store.Marks{Claimed: c.Rows[0].CreatedAt}}); err != nil {
		t.Fatal(err)
	}
	if n := storetest.Count(t, env.DB, "cache_outbox_journal WHERE epoch = 'E' AND beat = 9 AND born_us = 11"); n != 4 {
		t.Errorf("%d rows of the journal", n)
	}
	for _, key := range []string{keys[0], keys[20_000], keys[44_999]} {
		found := 0
		err := s.Journal.SearchJournal(t.Context(), store.JournalQuery{Key: key}, func(b store.Batch, list []store.JournalEntry) bool {
			for _, e := range list {
				found++
				if e.ID != 2 || e.HoldMillis != 7 || e.WrittenMicros != 6 || b.Born != 11 || b.Journey == nil {
					t.Errorf("%s: entry %d of batch %+v, held for %d ms", key, e.ID, b, e.HoldMillis)
				}
			}
			return true
		}, func(store.DamagedBatch) { t.Error("damaged") })
		if err != nil || found != 1 {
			t.Errorf("%s: found %d times, %v", key, found, err)
		}
	}
	var healed []string
	for {
		r, keys := storetest.ClaimHeal(t, s, store.Position{Epoch: "E", N: 8})
		if r == nil {
			break
		}
		healed = append(healed, keys...)
		if err := r.Settle(t.Context(), store.Position{Epoch: "F", N: 1}, 12); err != nil {
			t.Fatal(err)
		}
	}
	if want := append([]string{"shop:small"}, keys...); !slices.Equal(slices.Sorted(slices.Values(healed)), slices.Sorted(slices.Values(want))) {
		t.Errorf("%d keys were healed, wanted %d", len(healed), len(want))
	}
}
