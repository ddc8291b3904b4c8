package store_test

import (
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/unstale/unstale/internal/store"
)

// journalled settles a batch of one row for each position.
func journalled(t *testing.T, s *store.Store, db *sql.DB, positions ...store.Position) {
	t.Helper()
	for _, b := range positions {
		enqueue(t, db, products(1)...)
		c := claim(t, s, limits)
		entry := store.Entry{ID: c.Rows[0].ID, Entity: "product", EntityID: "1", Keys: []string{fmt.Sprint(b.Epoch, b.N)}}
		if err := c.Settle(t.Context(), store.Settlement{Done: ids(c.Rows), Journal: []store.Entry{entry}, Position: b}); err != nil {
			t.Fatal(err)
		}
	}
}

// claimHeal claims what it can and returns the keys.
func claimHeal(t *testing.T, s *store.Store, after store.Position) (r *store.HealClaim, keys []string) {
	t.Helper()
	r, err := s.ClaimHeal(t.Context(), after, store.MaxHeal)
	if err != nil {
		t.Fatal(err)
	}
	if r == nil {
		return nil, nil
	}
	for _, b := range r.Batches {
		for _, e := range b.Entries {
			keys = append(keys, e.Keys...)
		}
	}
	return r, keys
}

func wantPositions(t *testing.T, s *store.Store, want ...store.Position) {
	t.Helper()
	got, err := s.LastPositions(t.Context())
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("last positions %v, %v; wanted %v", got, err, want)
	}
}

// Healing takes the batches of one epoch after a position, nobody else gets them meanwhile, and they become the
// healer's.
func TestHealMovesBatches(t *testing.T) {
	t.Parallel()
	env := migrated(t)
	one, two := openStore(t, env.DSN), openStore(t, env.DSN)
	wantPositions(t, one)
	journalled(t, one, env.DB, store.Position{}, position("A", 1), position("B", 7), position("A", 3), position("A", 4))
	wantPositions(t, one, position("B", 7), position("A", 4))

	r, keys := claimHeal(t, one, position("A", 1))
	if !slices.Equal(keys, []string{"A3", "A4"}) {
		t.Fatalf("claimed %q", keys)
	}
	if other, keys := claimHeal(t, two, position("A", 0)); !slices.Equal(keys, []string{"A1"}) {
		t.Errorf("another worker claimed %q", keys)
	} else if err := other.Release(); err != nil {
		t.Error(err)
	}
	if err := r.Settle(t.Context(), position("C", 2), 7); err != nil {
		t.Fatal(err)
	}
	wantPositions(t, one, position("C", 2), position("B", 7), position("A", 1))
	if n := count(t, env.DB, "cache_outbox_journal WHERE born_us = 7"); n != 2 {
		t.Errorf("%d batches have the birth of the healing", n)
	}
	if r, keys := claimHeal(t, two, position("A", 1)); r != nil {
		t.Errorf("claimed %q a second time", keys)
	}
	if n, err := two.Adopt(t.Context(), "B", position("C", 3), 10); n != 1 || err != nil {
		t.Errorf("adopted %d, %v", n, err)
	}
	wantPositions(t, one, position("C", 3), position("A", 1))
}

// A finished sweep is in the journal, and healing asks for it again under its id. One that waits is left alone.
func TestHealRenewsSweeps(t *testing.T) {
	t.Parallel()
	env := migrated(t)
	s := openStore(t, env.DSN)
	enqueue(t, env.DB, products(1)...)
	c := claim(t, s, limits)
	wanted := []store.Sweep{{Kind: store.SweepPattern, Name: "a:\xff*"}, {Kind: store.SweepSet, Name: "tag:1"}}
	if err := c.Settle(t.Context(), store.Settlement{Done: ids(c.Rows), Sweeps: wanted}); err != nil {
		t.Fatal(err)
	}
	before, err := s.Sweeps(t.Context(), 10)
	if err != nil || len(before) != 2 {
		t.Fatal(before, err)
	}
	if err := s.FinishSweeps(t.Context(), store.Swept{Finished: before, Position: position("S", 5), MapVersion: "map"}); err != nil {
		t.Fatal(err)
	}
	if n := count(t, env.DB, "cache_outbox_sweeps"); n != 0 {
		t.Fatalf("%d sweeps wait", n)
	}
	for round := range 2 { // the second time they still wait
		r, _ := claimHeal(t, s, position("S", 0))
		if r == nil {
			t.Fatal("nothing to heal")
		}
		if err := r.Settle(t.Context(), position("S", 6), 0); err != nil {
			t.Fatal(err)
		}
		after, err := s.Sweeps(t.Context(), 10)
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

// A damaged batch is set aside, where status shows it and healing does not meet it again, and the others of its claim
// are moved.
func TestHealMeetsADamagedBatch(t *testing.T) {
	t.Parallel()
	env := migrated(t)
	s := openStore(t, env.DSN)
	journalled(t, s, env.DB, position("A", 1), position("A", 2), position("A", 3), position("B", 1))
	if _, err := env.DB.Exec("UPDATE cache_outbox_journal SET body = 'x' WHERE beat = 2 OR epoch = 'B'"); err != nil {
		t.Fatal(err)
	}
	r, keys := claimHeal(t, s, position("A", 0))
	if !slices.Equal(keys, []string{"A1", "A3"}) || len(r.Damaged) != 1 || r.Damaged[0].ID != 2 || r.Damaged[0].Rows != 1 {
		t.Fatalf("claimed %q, damaged %+v", keys, r.Damaged)
	}
	if err := r.Settle(t.Context(), position("C", 1), 0); err != nil {
		t.Fatal(err)
	}
	r, keys = claimHeal(t, s, position("B", 0))
	if len(keys) != 0 || len(r.Damaged) != 1 || r.Damaged[0].ID != 4 {
		t.Fatalf("claimed %q, damaged %+v", keys, r.Damaged)
	}
	if err := r.Settle(t.Context(), position("C", 2), 0); err != nil {
		t.Fatal(err)
	}
	wantPositions(t, s, position("C", 2))
	if recent, err := s.RecentPositions(t.Context(), time.Hour); err != nil || !slices.Equal(recent, []store.Position{position("C", 2)}) {
		t.Errorf("recent positions %v, %v", recent, err)
	}
	status, err := s.Status(t.Context())
	if err != nil || status.Damaged != 2 || status.LastDamaged == nil || status.LastDamaged.ID != 4 {
		t.Errorf("status %+v, %v", status, err)
	}
}

func position(epoch string, n uint64) store.Position { return store.Position{Epoch: epoch, N: n} }

// Batches whose names are long are claimed a few at a time: a body packs them a hundredfold, and all of them together
// would take gigabytes.
func TestHealIsBoundedInBytes(t *testing.T) {
	t.Parallel()
	env := migrated(t)
	s := openPatientStore(t, env.DSN, time.Minute) // packing 15 MB takes a busy machine seconds
	long := strings.Repeat("x", 60_000)
	for n := range uint64(5) {
		enqueue(t, env.DB, products(1)...)
		c := claim(t, s, limits)
		entry := store.Entry{ID: c.Rows[0].ID, Entity: "product", EntityID: "1"}
		for i := range 250 { // 15 MB
			entry.Keys = append(entry.Keys, fmt.Sprint(long, i))
		}
		if err := c.Settle(t.Context(), store.Settlement{Done: ids(c.Rows), Journal: []store.Entry{entry}, Position: position("A", n+1)}); err != nil {
			t.Fatal(err)
		}
	}
	claims, healed := 0, 0
	for {
		r, keys := claimHeal(t, s, position("A", 0))
		if r == nil {
			break
		}
		claims, healed = claims+1, healed+len(keys)
		if bytes := len(keys) * len(long); bytes > 9<<20 {
			t.Errorf("claim %d has %d bytes", claims, bytes)
		}
		if err := r.Settle(t.Context(), position("B", uint64(claims)), 0); err != nil {
			t.Fatal(err)
		}
	}
	if claims < 8 || healed != 5*250 {
		t.Errorf("%d claims of 75 MB, %d keys", claims, healed)
	}
}
