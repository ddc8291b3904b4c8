package store_test

import (
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/internal/storetest"
)

// journalled settles a batch of one row for each position.
func journalled(t *testing.T, s *store.Store, db *sql.DB, positions ...store.Position) {
	t.Helper()
	for _, b := range positions {
		storetest.Enqueue(t, db, storetest.Products(1)...)
		c := storetest.Claim(t, s, storetest.Limits)
		entry := store.JournalEntry{ID: c.Rows[0].ID, Entity: "product", EntityID: "1", Keys: []string{fmt.Sprint(b.Epoch, b.N)}}
		if err := c.Settle(t.Context(), store.Settlement{Done: storetest.IDs(c.Rows), Journal: []store.JournalEntry{entry}, Position: b}); err != nil {
			t.Fatal(err)
		}
	}
}

func wantPositions(t *testing.T, s *store.Store, want ...store.Position) {
	t.Helper()
	got, err := s.Journal.LastPositions(t.Context())
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("last positions %v, %v; wanted %v", got, err, want)
	}
}

// Healing takes the batches of one epoch after a position. No other session gets them meanwhile,
// and they move to the healer's epoch.
func TestHealMovesBatches(t *testing.T) {
	t.Parallel()
	env := storetest.Migrated(t)
	one, two := storetest.Open(t, env.DSN), storetest.Open(t, env.DSN)
	wantPositions(t, one)
	journalled(t, one, env.DB, store.Position{}, storetest.Position("A", 1), storetest.Position("B", 7), storetest.Position("A", 3), storetest.Position("A", 4))
	wantPositions(t, one, storetest.Position("B", 7), storetest.Position("A", 4))

	r, keys := storetest.ClaimHeal(t, one, storetest.Position("A", 1))
	if !slices.Equal(keys, []string{"A3", "A4"}) {
		t.Fatalf("claimed %q", keys)
	}
	if other, keys := storetest.ClaimHeal(t, two, storetest.Position("A", 0)); !slices.Equal(keys, []string{"A1"}) {
		t.Errorf("another worker claimed %q", keys)
	} else if err := other.Release(); err != nil {
		t.Error(err)
	}
	if err := r.Settle(t.Context(), storetest.Position("C", 2), 7); err != nil {
		t.Fatal(err)
	}
	wantPositions(t, one, storetest.Position("C", 2), storetest.Position("B", 7), storetest.Position("A", 1))
	if n := storetest.Count(t, env.DB, "cache_outbox_journal WHERE born_us = 7"); n != 2 {
		t.Errorf("%d batches have the unlink time of the healing", n)
	}
	if r, keys := storetest.ClaimHeal(t, two, storetest.Position("A", 1)); r != nil {
		t.Errorf("claimed %q a second time", keys)
	}
	if n, err := two.Journal.Adopt(t.Context(), "B", storetest.Position("C", 3), 10); n != 1 || err != nil {
		t.Errorf("adopted %d, %v", n, err)
	}
	wantPositions(t, one, storetest.Position("C", 3), storetest.Position("A", 1))
}

// A finished sweep is in the journal, and healing requests it again under its ID. A sweep that
// waits is not changed.
func TestHealRenewsSweeps(t *testing.T) {
	t.Parallel()
	env := storetest.Migrated(t)
	s := storetest.Open(t, env.DSN)
	storetest.Enqueue(t, env.DB, storetest.Products(1)...)
	c := storetest.Claim(t, s, storetest.Limits)
	wanted := []store.Sweep{{Kind: store.SweepPattern, Name: "a:\xff*"}, {Kind: store.SweepSet, Name: "tag:1"}}
	if err := c.Settle(t.Context(), store.Settlement{Done: storetest.IDs(c.Rows), Sweeps: wanted}); err != nil {
		t.Fatal(err)
	}
	before, err := s.Sweeps.Sweeps(t.Context(), 10)
	if err != nil || len(before) != 2 {
		t.Fatal(before, err)
	}
	if err := s.Sweeps.FinishSweeps(t.Context(), store.Swept{Finished: before, Position: storetest.Position("S", 5), MapVersion: "map"}); err != nil {
		t.Fatal(err)
	}
	if n := storetest.Count(t, env.DB, "cache_outbox_sweeps"); n != 0 {
		t.Fatalf("%d sweeps wait", n)
	}
	for round := range 2 { // the second time they still wait
		r, _ := storetest.ClaimHeal(t, s, storetest.Position("S", 0))
		if r == nil {
			t.Fatal("nothing to heal")
		}
		if err := r.Settle(t.Context(), storetest.Position("S", 6), 0); err != nil {
			t.Fatal(err)
		}
		after, err := s.Sweeps.Sweeps(t.Context(), 10)
		if err != nil || len(after) != 2 {
			t.Fatal(after, err)
		}
		for i := range after {
			if after[i].ID != before[i].ID || after[i].Kind != before[i].Kind || after[i].Name != before[i].Name {
				t.Errorf("round %d: got %+v, wanted %+v", round, after[i], before[i])
			}
		}
	}
}

// A damaged batch is set aside: status shows it, and healing does not find it again. The other
// batches of the claim are moved.
func TestHealMeetsADamagedBatch(t *testing.T) {
	t.Parallel()
	env := storetest.Migrated(t)
	s := storetest.Open(t, env.DSN)
	journalled(t, s, env.DB, storetest.Position("A", 1), storetest.Position("A", 2), storetest.Position("A", 3), storetest.Position("B", 1))
	if _, err := env.DB.Exec("UPDATE cache_outbox_journal SET body = 'x' WHERE beat = 2 OR epoch = 'B'"); err != nil {
		t.Fatal(err)
	}
	r, keys := storetest.ClaimHeal(t, s, storetest.Position("A", 0))
	if !slices.Equal(keys, []string{"A1", "A3"}) || len(r.Damaged) != 1 || r.Damaged[0].ID != 2 || r.Damaged[0].Rows != 1 {
		t.Fatalf("claimed %q, damaged %+v", keys, r.Damaged)
	}
	if err := r.Settle(t.Context(), storetest.Position("C", 1), 0); err != nil {
		t.Fatal(err)
	}
	r, keys = storetest.ClaimHeal(t, s, storetest.Position("B", 0))
	if len(keys) != 0 || len(r.Damaged) != 1 || r.Damaged[0].ID != 4 {
		t.Fatalf("claimed %q, damaged %+v", keys, r.Damaged)
	}
	if err := r.Settle(t.Context(), storetest.Position("C", 2), 0); err != nil {
		t.Fatal(err)
	}
	wantPositions(t, s, storetest.Position("C", 2))
	if recent, err := s.Journal.RecentPositions(t.Context(), time.Hour); err != nil || !slices.Equal(recent, []store.Position{storetest.Position("C", 2)}) {
		t.Errorf("recent positions %v, %v", recent, err)
	}
	status, err := s.Overview.Status(t.Context())
	if err != nil || status.Damaged != 2 || status.LastDamaged == nil || status.LastDamaged.ID != 4 {
		t.Errorf("status %+v, %v", status, err)
	}
}

// Batches with long names are claimed a few at a time: a body compresses them a hundredfold, and
// all of them together would take gigabytes.
func TestHealIsBoundedInBytes(t *testing.T) {
	t.Parallel()
	env := storetest.Migrated(t)
	// packing 15 MB takes a busy machine seconds
	s := storetest.OpenPatient(t, env.DSN, time.Minute)
	long := strings.Repeat("x", 60_000)
	for n := range uint64(5) {
		storetest.Enqueue(t, env.DB, storetest.Products(1)...)
		c := storetest.Claim(t, s, storetest.Limits)
		entry := store.JournalEntry{ID: c.Rows[0].ID, Entity: "product", EntityID: "1"}
		for i := range 250 { // 15 MB
			entry.Keys = append(entry.Keys, fmt.Sprint(long, i))
		}
		if err := c.Settle(t.Context(), store.Settlement{Done: storetest.IDs(c.Rows), Journal: []store.JournalEntry{entry}, Position: storetest.Position("A", n+1)}); err != nil {
			t.Fatal(err)
		}
	}
	claims, healed := 0, 0
	for {
		r, keys := storetest.ClaimHeal(t, s, storetest.Position("A", 0))
		if r == nil {
			break
		}
		claims, healed = claims+1, healed+len(keys)
		if bytes := len(keys) * len(long); bytes > 9<<20 {
			t.Errorf("claim %d has %d bytes", claims, bytes)
		}
		if err := r.Settle(t.Context(), storetest.Position("B", uint64(claims)), 0); err != nil {
			t.Fatal(err)
		}
	}
	if claims < 8 || healed != 5*250 {
		t.Errorf("%d claims of 75 MB, %d keys", claims, healed)
	}
}
