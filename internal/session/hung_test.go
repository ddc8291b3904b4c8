package session_test

import (
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/internal/session"
	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/internal/storetest"
	"github.com/unstale/unstale/internal/storetest/schematest"
	"github.com/unstale/unstale/internal/testenv"
)

// hangable returns a migrated database on a server whose COMMITs can be made to hang.
func hangable(t *testing.T) *testenv.Database {
	t.Helper()
	env := testenv.OwnDatabase(t, servers.BinaryLog...)
	schematest.Up(t, env.DB)
	return env
}

// hasty opens a store that allows 0.8 s for a COMMIT.
func hasty(t *testing.T, dsn string) *store.Store {
	t.Helper()
	s, err := store.Open(session.Config{MySQL: storetest.Parse(t, dsn), Worker: "hasty", ClaimTimeout: 2 * time.Second, StatementTimeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// A settlement whose COMMIT hangs counts as hung after its limit, even before it returns. Polls and
// claims that work do not reset that. The next write that commits does.
func TestACommitHangs(t *testing.T) {
	t.Parallel()
	env := hangable(t)
	s := hasty(t, env.DSN)
	storetest.Enqueue(t, env.DB, storetest.Products(1)...)
	c := storetest.Claim(t, s, storetest.Limits)
	if err := s.Sessions.Hung(); err != nil {
		t.Errorf("before: %v", err)
	}
	release := testenv.HoldCommits(t, env.DB)
	settled := make(chan error, 1)
	go func() {
		settled <- c.Settle(t.Context(), store.Settlement{Done: []uint64{c.Rows[0].ID}, MapVersion: "v"})
	}()
	testenv.Eventually(t, "it hangs", func() bool { return s.Sessions.Hung() != nil })
	err := <-settled
	var hung *session.HungError
	if !errors.As(err, &hung) || session.State(err) != session.StateHung || session.IsRefusal(err) {
		t.Errorf("settle: %v, a state of %q", err, session.State(err))
	}
	if found, err := s.Queue.Waiting(t.Context()); err != nil || !found {
		t.Errorf("the row can be read: %t, %v", found, err)
	}
	if c, err := s.Queue.Claim(t.Context(), storetest.Limits); err != nil || c != nil {
		t.Errorf("its lock is kept: %+v, %v", c, err)
	}
	if err := s.Sessions.Hung(); err == nil || err.Error() != hung.Error() {
		t.Errorf("after a poll: %v, wanted %v", err, hung)
	}
	release()
	testenv.Eventually(t, "a status record commits", func() bool {
		return s.Workers.NoteWorker(t.Context(), store.WorkerNote{ID: "A", State: store.WorkerWorking}) == nil
	})
	if err := s.Sessions.Hung(); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// Worker status records that hang count as well. No matter how many are tried, only one server
// session hangs with them, and it detects when the server commits again.
func TestANoteHangs(t *testing.T) {
	t.Parallel()
	env := hangable(t)
	s := hasty(t, env.DSN)
	release := testenv.HoldCommits(t, env.DB)
	note := func() error {
		return s.Workers.NoteWorker(t.Context(), store.WorkerNote{ID: "A", State: store.WorkerWorking})
	}
	for range 2 { // the first patience, and twice that
		if err := note(); err == nil {
			t.Error("the record was written")
		}
		testenv.Eventually(t, "it hangs", func() bool { return s.Sessions.Hung() != nil })
	}
	for range 10 {
		if err := note(); err == nil {
			t.Error("the record was written")
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
	testenv.Eventually(t, "the status record arrives", func() bool { return s.Sessions.Hung() == nil })
	testenv.Eventually(t, "status records work again", func() bool { return note() == nil })
}

// A server that responds, even with an error, does not hang.
func TestAnAnswerIsNoHang(t *testing.T) {
	t.Parallel()
	env := storetest.Migrated(t)
	s := hasty(t, env.DSN)
	if _, err := env.DB.Exec("DROP TABLE cache_outbox_workers"); err != nil {
		t.Fatal(err)
	}
	if err := s.Workers.NoteWorker(t.Context(), store.WorkerNote{ID: "A"}); !session.IsRefusal(err) {
		t.Errorf("note: %v", err)
	}
	if err := s.Sessions.Hung(); err != nil {
		t.Error(err)
	}
}

// A write hangs only if the server answers reads: one that gets no reply counts again from the last
// read without an answer. An error of the server is an answer.
func TestAServerThatAnswersNothingDoesNotHang(t *testing.T) {
	t.Parallel()
	env := hangable(t)
	s := hasty(t, env.DSN)
	testenv.HoldCommits(t, env.DB)
	_ = s.Workers.NoteWorker(t.Context(), store.WorkerNote{ID: "A", State: store.WorkerWorking}) // it hangs
	testenv.Eventually(t, "it hangs", func() bool { return s.Sessions.Hung() != nil })
	if s.Sessions.NoReply(&mysql.MySQLError{Number: 1205}); s.Sessions.Hung() == nil {
		t.Error("the server has answered the read")
	}
	if s.Sessions.NoReply(mysql.ErrInvalidConn); s.Sessions.Hung() != nil {
		t.Error("the server has answered nothing")
	}
	testenv.Eventually(t, "it hangs again", func() bool {
		_ = s.Workers.NoteWorker(t.Context(), store.WorkerNote{ID: "A", State: store.WorkerWorking})
		return s.Sessions.Hung() != nil
	})
}

// The fix belongs to the error: a missing table and a node without its cluster need no privilege,
// and a server that does not answer is described without the words of the driver.
func TestExplain(t *testing.T) {
	t.Parallel()
	args := []string{}
	if testenv.OwnFlavor(t) == servers.KindMariaDB {
		library, err := servers.GaleraLibrary()
		if err != nil {
			t.Fatal(err)
		}
		args = []string{
			"--wsrep-on=ON", "--wsrep-provider=" + library, "--wsrep-cluster-address=gcomm://", "--wsrep-node-address=127.0.0.1", "--binlog-format=ROW",
			fmt.Sprintf("--wsrep-provider-options=gmcast.listen_addr=tcp://127.0.0.1:%d;gcache.size=1M", testenv.BusPort(t)),
		}
	}
	server := testenv.OwnMySQL(t, args...)
	s := hasty(t, server.DSN("mysql"))
	wants := func(text string) {
		t.Helper()
		said := ""
		testenv.Eventually(t, text, func() bool {
			_, err := s.Overview.Status(t.Context())
			said = session.Explain(err).Error()
			return strings.Contains(said, text)
		})
		if strings.Contains(said, "grant") {
			t.Errorf("a grant is advised: %s", said)
		}
	}
	wants("doesn't exist; if the table was renamed, rename it back")
	if server.Flavor() == servers.KindMariaDB {
		admin, err := sql.Open("mysql", server.DSN(""))
		if err != nil {
			t.Fatal(err)
		}
		defer admin.Close()
		if _, err := admin.ExecContext(t.Context(), "SET GLOBAL wsrep_reject_queries = ALL"); err != nil {
			t.Fatal(err)
		}
		wants("if the server is a node of a Galera cluster, it has not joined, or the quorum is lost")
	}
	if err := server.Pause(); err != nil {
		t.Fatal(err)
	}
	for range 4 { // sessions that are open, and new ones
		_, err := s.Overview.Status(t.Context())
		if said := session.Explain(err).Error(); !strings.HasPrefix(said, "MySQL does not answer in time; check that it runs") {
			t.Errorf("%v: %s", err, said)
		}
	}
}
