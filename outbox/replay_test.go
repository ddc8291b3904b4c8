package outbox_test

import (
	"database/sql"
	"fmt"
	"slices"
	"testing"

	"github.com/unstale/unstale/outbox"
)

// journalled settles a batch of one row for each beat.
func journalled(t *testing.T, s *outbox.Store, db *sql.DB, beats ...outbox.Beat) {
	t.Helper()
	for _, b := range beats {
		enqueue(t, db, products(1)...)
		c := claim(t, s, limits)
		entry := outbox.Entry{ID: c.Rows[0].ID, Entity: "product", EntityID: "1", Keys: []string{fmt.Sprint(b.Epoch, b.N)}}
		if err := c.Settle(t.Context(), outbox.Settlement{Done: ids(c.Rows), Journal: []outbox.Entry{entry}, Beat: b}); err != nil {
			t.Fatal(err)
		}
	}
}

// claimReplay claims what it can and returns the keys.
func claimReplay(t *testing.T, s *outbox.Store, after outbox.Beat) (r *outbox.Replay, keys []string) {
	t.Helper()
	r, err := s.ClaimReplay(t.Context(), after, outbox.MaxReplay)
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

func wantBeats(t *testing.T, s *outbox.Store, want ...outbox.Beat) {
	t.Helper()
	got, err := s.LastBeats(t.Context())
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("last beats %v, %v; wanted %v", got, err, want)
	}
}

// A replay takes the batches of one epoch after a beat, nobody else gets them meanwhile, and they become the replayer's.
func TestReplayMovesBatches(t *testing.T) {
	t.Parallel()
	env := migrated(t)
	one, two := openStore(t, env.DSN), openStore(t, env.DSN)
	wantBeats(t, one)
	journalled(t, one, env.DB, outbox.Beat{}, beat("A", 1), beat("B", 7), beat("A", 3), beat("A", 4))
	wantBeats(t, one, beat("B", 7), beat("A", 4))

	r, keys := claimReplay(t, one, beat("A", 1))
	if !slices.Equal(keys, []string{"A3", "A4"}) {
		t.Fatalf("claimed %q", keys)
	}
	if other, keys := claimReplay(t, two, beat("A", 0)); !slices.Equal(keys, []string{"A1"}) {
		t.Errorf("another replay claimed %q", keys)
	} else if err := other.Release(); err != nil {
		t.Error(err)
	}
	if err := r.Settle(t.Context(), beat("C", 2)); err != nil {
		t.Fatal(err)
	}
	wantBeats(t, one, beat("C", 2), beat("B", 7), beat("A", 1))
	if r, keys := claimReplay(t, two, beat("A", 1)); r != nil {
		t.Errorf("claimed %q a second time", keys)
	}
	if n, err := two.Adopt(t.Context(), "B", beat("C", 3)); n != 1 || err != nil {
		t.Errorf("adopted %d, %v", n, err)
	}
	wantBeats(t, one, beat("C", 3), beat("A", 1))
}

// A finished sweep is in the journal, and its replay asks for it again under its id. One that waits is left alone.
func TestReplayRenewsSweeps(t *testing.T) {
	t.Parallel()
	env := migrated(t)
	s := openStore(t, env.DSN)
	enqueue(t, env.DB, products(1)...)
	c := claim(t, s, limits)
	wanted := []outbox.Sweep{{Kind: outbox.SweepPattern, Name: "a:\xff*"}, {Kind: outbox.SweepSet, Name: "tag:1"}}
	if err := c.Settle(t.Context(), outbox.Settlement{Done: ids(c.Rows), Sweeps: wanted}); err != nil {
		t.Fatal(err)
	}
	before, err := s.Sweeps(t.Context(), 10)
	if err != nil || len(before) != 2 {
		t.Fatal(before, err)
	}
	if err := s.FinishSweeps(t.Context(), outbox.Swept{Finished: before, Beat: beat("S", 5), MapVersion: "map"}); err != nil {
		t.Fatal(err)
	}
	if n := count(t, env.DB, "cache_outbox_sweeps"); n != 0 {
		t.Fatalf("%d sweeps wait", n)
	}
	for round := range 2 { // the second time they still wait
		r, _ := claimReplay(t, s, beat("S", 0))
		if r == nil {
			t.Fatal("nothing to replay")
		}
		if err := r.Settle(t.Context(), beat("S", 6)); err != nil {
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

// A damaged batch is an error that names it and the cure.
func TestReplayOfADamagedBatch(t *testing.T) {
	t.Parallel()
	env := migrated(t)
	s := openStore(t, env.DSN)
	journalled(t, s, env.DB, beat("A", 1))
	if _, err := env.DB.Exec("UPDATE cache_outbox_journal SET body = 'x'"); err != nil {
		t.Fatal(err)
	}
	_, err := s.ClaimReplay(t.Context(), beat("A", 0), 1)
	want := "claim batches to replay: batch 1: journal body is damaged: unknown format; delete that row of cache_outbox_journal to go on without it"
	if err == nil || err.Error() != want {
		t.Errorf("got %v", err)
	}
}

func beat(epoch string, n uint64) outbox.Beat { return outbox.Beat{Epoch: epoch, N: n} }
