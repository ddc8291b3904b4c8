package store_test

import (
	"errors"
	"testing"
	"time"

	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/migrations"
)

// hangable is a migrated database on a server whose COMMITs can be made to hang.
func hangable(t *testing.T) *testenv.Database {
	t.Helper()
	env := testenv.OwnDatabase(t, servers.BinaryLog...)
	if _, err := migrations.Up(t.Context(), env.DB); err != nil {
		t.Fatal(err)
	}
	return env
}

// hasty opens a store that gives a COMMIT 0.8 s.
func hasty(t *testing.T, dsn string) *store.Store {
	t.Helper()
	s, err := store.Open(store.Config{MySQL: parse(t, dsn), Worker: "hasty", ClaimTimeout: 2 * time.Second, StatementTimeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// A settlement whose COMMIT hangs counts from its limit on, before it has returned. Polls and claims
// that work do not end that. The next write that commits does.
func TestACommitHangs(t *testing.T) {
	t.Parallel()
	env := hangable(t)
	s := hasty(t, env.DSN)
	enqueue(t, env.DB, products(1)...)
	c := claim(t, s, limits)
	if err := s.Hung(); err != nil {
		t.Errorf("before: %v", err)
	}
	release := testenv.HoldCommits(t, env.DB)
	settled := make(chan error, 1)
	go func() {
		settled <- c.Settle(t.Context(), store.Settlement{Done: []uint64{c.Rows[0].ID}, MapVersion: "v"})
	}()
	testenv.Eventually(t, "it hangs", func() bool { return s.Hung() != nil })
	err := <-settled
	var hung *store.HungError
	if !errors.As(err, &hung) || store.State(err) != store.StateHung || store.IsRefusal(err) {
		t.Errorf("settle: %v, a state of %q", err, store.State(err))
	}
	if found, err := s.Waiting(t.Context()); err != nil || !found {
		t.Errorf("the row can be read: %t, %v", found, err)
	}
	if c, err := s.Claim(t.Context(), limits); err != nil || c != nil {
		t.Errorf("its lock is kept: %+v, %v", c, err)
	}
	if err := s.Hung(); err == nil || err.Error() != hung.Error() {
		t.Errorf("after a poll: %v, wanted %v", err, hung)
	}
	release()
	testenv.Eventually(t, "a note commits", func() bool {
		return s.NoteWorker(t.Context(), store.WorkerNote{ID: "A", State: store.WorkerWorking}) == nil
	})
	if err := s.Hung(); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// Notes of a worker that hang count as well. However many are tried, one session of the server hangs
// with them, and it tells when the server commits again.
func TestANoteHangs(t *testing.T) {
	t.Parallel()
	env := hangable(t)
	s := hasty(t, env.DSN)
	release := testenv.HoldCommits(t, env.DB)
	note := func() error {
		return s.NoteWorker(t.Context(), store.WorkerNote{ID: "A", State: store.WorkerWorking})
	}
	for range 2 { // the first patience, and its double
		if err := note(); err == nil {
			t.Error("it was noted")
		}
		testenv.Eventually(t, "it hangs", func() bool { return s.Hung() != nil })
	}
	for range 10 {
		if err := note(); err == nil {
			t.Error("it was noted")
		}
	}
	var sessions int
	if err := env.DB.QueryRow("SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE 'REPLACE INTO cache_outbox_workers%'").Scan(&sessions); err != nil {
		t.Fatal(err)
	}
	if sessions < 1 || sessions > 3 {
		t.Errorf("%d sessions hang", sessions)
	}
	release()
	testenv.Eventually(t, "the note arrives", func() bool { return s.Hung() == nil })
	testenv.Eventually(t, "notes work again", func() bool { return note() == nil })
}

// A server that answers, be it with an error, does not hang.
func TestAnAnswerIsNoHang(t *testing.T) {
	t.Parallel()
	env := migrated(t)
	s := hasty(t, env.DSN)
	if _, err := env.DB.Exec("DROP TABLE cache_outbox_workers"); err != nil {
		t.Fatal(err)
	}
	if err := s.NoteWorker(t.Context(), store.WorkerNote{ID: "A"}); !store.IsRefusal(err) {
		t.Errorf("note: %v", err)
	}
	if err := s.Hung(); err != nil {
		t.Error(err)
	}
}
