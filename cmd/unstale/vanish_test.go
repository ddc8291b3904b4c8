package main

import (
	"context"
	"database/sql"
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/outbox"
)

// lockTable locks a table for all other sessions until the caller calls unlock.
func (f *frail) lockTable(table string) (unlock func()) {
	f.t.Helper()
	conn, err := f.db.Conn(f.t.Context())
	if err != nil {
		f.t.Fatal(err)
	}
	do := func(statement string) {
		if _, err := conn.ExecContext(context.WithoutCancel(f.t.Context()), statement); err != nil {
			f.t.Fatalf("%s: %v", statement, err)
		}
	}
	do("LOCK TABLES " + table + " WRITE")
	return func() { do("UNLOCK TABLES"); _ = conn.Close() }
}

// stuck counts the worker's sessions that wait for a locked table.
func (f *frail) stuck() (n int) {
	f.t.Helper()
	// the dictionary's view cannot show statements with binary text
	rows, err := f.admin.Query("SHOW PROCESSLIST")
	if err != nil {
		f.t.Fatal(err)
	}
	defer rows.Close()
	columns, err := rows.Columns()
	f.must(err)
	for rows.Next() {
		fields, into := make([]sql.RawBytes, len(columns)), make([]any, len(columns))
		for i := range fields {
			into[i] = &fields[i]
		}
		f.must(rows.Scan(into...))
		if string(fields[1]) == "unstale" && strings.HasPrefix(string(fields[6]), "Waiting for table") {
			n++
		}
	}
	f.must(rows.Err())
	return n
}

// Sentence 8: a worker that freezes while a large claim is on its way to it frees the rows:
// net_write_timeout.
func TestFrozenWhileReceiving(t *testing.T) {
	t.Parallel()
	f := newFrail(t)
	const rows = 400
	text := strings.Repeat("x", 8000)
	invs := make([]outbox.Invalidation, rows)
	for i := range invs {
		invs[i] = outbox.Invalidation{Entity: "thing", ID: fmt.Sprint(i + 1), Params: map[string]any{"text": text}}
	}
	f.setKeys(rows)
	victim := f.start("--claim-timeout", "2s")
	victim.until("the worker is ready", func() bool { return victim.ready() == http.StatusOK })
	f.must(f.toMySQL.Throttle(1500))
	err := outbox.InTx(t.Context(), f.db, func(tx *sql.Tx) error { return outbox.Enqueue(t.Context(), tx, invs...) })
	f.must(err)
	victim.until("the worker freezes with rows in its hand", func() bool {
		if !f.claimed() {
			return false
		}
		victim.signal(syscall.SIGSTOP)
		if f.claimed() {
			return true
		}
		victim.signal(syscall.SIGCONT)
		return false
	})
	victim.until("the server frees the rows", func() bool { return !f.claimed() })
	f.must(f.toMySQL.Heal(t.Context()))
	f.start("--once").wantExit(exitDone)
	f.checkDone(rows)
}

// Sentence 8: a worker whose network swallows every packet frees its rows: wait_timeout.
func TestNetworkSwallowsTheWorker(t *testing.T) {
	t.Parallel()
	f := newFrail(t)
	const rows = 100
	f.env["REDIS_URL"] = f.server.URL()
	victim := f.startHolding(rows, "--claim-timeout", "5s")
	for { // nothing that the worker does may reach the server
		victim.until("the worker holds the rows", f.claimed)
		f.must(f.toMySQL.Swallow())
		victim.signal(syscall.SIGSTOP)
		if f.claimed() {
			break
		}
		victim.signal(syscall.SIGCONT)
		f.must(f.toMySQL.Heal(t.Context()))
	}
	victim.until("the server frees the rows", func() bool { return !f.claimed() })
	f.must(f.toMySQL.Heal(t.Context()))
	f.must(f.server.Resume())
	f.start("--once").wantExit(exitDone)
	f.checkDone(rows)
	victim.signal(syscall.SIGCONT)
	f.fill(1)
	victim.until("the worker that was away works", func() bool { return f.count("cache_outbox") == 0 })
}

// Sentence 8: a worker that vanishes while it waits for a locked table leaves no session that would
// claim rows later: lock_wait_timeout.
func TestVanishedBehindALockedTable(t *testing.T) {
	t.Parallel()
	f := newFrail(t)
	victim := f.start("--claim-timeout", "2s")
	victim.until("the worker is ready", func() bool { return victim.ready() == http.StatusOK })
	f.fill(10)
	victim.until("the rows go", func() bool { return f.count("cache_outbox") == 0 })
	unlock := f.lockTable("cache_outbox")
	victim.until("the worker freezes while it waits", func() bool {
		if f.stuck() == 0 {
			return false
		}
		victim.signal(syscall.SIGSTOP)
		return true
	})
	victim.until("the server gives its sessions up", func() bool { return f.stuck() == 0 })
	unlock()
	f.setKeys(20)
	f.enqueue(20)
	f.start("--once").wantExit(exitDone)
	victim.signal(syscall.SIGCONT)
	f.fill(21)
	victim.until("the thawed worker works", func() bool { return f.count("cache_outbox") == 0 && f.keys() == 0 })
	if n := f.count("cache_outbox_delayed") + f.count("cache_outbox_dead"); n != 0 {
		t.Errorf("%d rows were taken to be at fault", n)
	}
}

// Sentences 1 and 9: SIGTERM and then SIGKILL, as Kubernetes does it, at each point of a batch.
func TestTerminatedThenKilled(t *testing.T) {
	t.Parallel()
	const rows = 50
	for point, block := range map[string]func(f *frail) (r *running, free func()){
		"in its claim": func(f *frail) (*running, func()) {
			r := f.start()
			r.until("the worker is ready", func() bool { return r.ready() == http.StatusOK })
			f.setKeys(rows)
			unlock := f.lockTable("cache_outbox")
			r.until("the worker waits", func() bool { return f.stuck() > 0 })
			return r, func() { unlock(); f.enqueue(rows) }
		},
		"in UNLINK": func(f *frail) (*running, func()) {
			f.env["REDIS_URL"] = f.server.URL()
			r := f.startHolding(rows)
			return r, func() { f.must(f.server.Resume()) }
		},
		"in its settlement": func(f *frail) (*running, func()) {
			r := f.start()
			r.until("the worker is ready", func() bool { return r.ready() == http.StatusOK })
			unlock := f.lockTable("cache_outbox_journal")
			f.setKeys(rows)
			conn, err := f.mysqlConn()
			f.must(err)
			defer conn.Close()
			for i := range rows {
				_, err := conn.ExecContext(f.t.Context(), "INSERT INTO cache_outbox (entity, entity_id) VALUES ('thing', ?)", fmt.Sprint(i+1))
				f.must(err)
			}
			r.until("the worker waits", func() bool { return f.stuck() > 0 })
			return r, unlock
		},
	} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			f := newFrail(t)
			r, free := block(f)
			r.signal(syscall.SIGTERM)
			r.until("the first signal is heard", func() bool { return r.log.has("stopping: the current batch") })
			_ = r.cmd.Process.Signal(syscall.SIGKILL) // it may have ended in order by now
			r.end()
			free()
			f.start("--once").wantExit(exitDone)
			if keys, left := f.keys(), f.count("cache_outbox"); keys != 0 || left != 0 {
				t.Errorf("%d keys and %d rows left", keys, left)
			}
			if n := len(f.settled()); n != rows {
				t.Errorf("%d of %d rows in the journal", n, rows)
			}
			f.checkCounted(rows)
		})
	}
}

// mysqlConn returns another session than the one with the lock.
func (f *frail) mysqlConn() (*sql.Conn, error) { return f.db.Conn(f.t.Context()) }

// Sentence 9: SIGTERM during an outage ends the worker cleanly.
func TestTerminatedDuringAnOutage(t *testing.T) {
	t.Parallel()
	for name, breakIt := range map[string]func(f *frail){
		"redis is away":         func(f *frail) { f.toRedis.Close() },
		"redis is a black hole": func(f *frail) { f.must(f.toRedis.Swallow()) },
		"mysql is away":         func(f *frail) { f.toMySQL.Close() },
		"mysql is a black hole": func(f *frail) { f.must(f.toMySQL.Swallow()) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFrail(t)
			r := f.start()
			r.until("the worker is ready", func() bool { return r.ready() == http.StatusOK })
			breakIt(f)
			r.until("the outage shows", func() bool { return r.log.has("outage: rows wait") })
			r.signal(syscall.SIGTERM)
			r.wantExit(exitDone)
		})
	}
}

// A worker that is killed while its COMMIT is on the way has settled and counted its rows once, and
// nobody does so again.
func TestKilledInItsCommit(t *testing.T) {
	t.Parallel()
	f := newFrail(t, servers.BinaryLog...)
	const rows = 50
	f.env["REDIS_URL"] = f.server.URL()
	r := f.startHolding(rows)
	release := testenv.HoldCommits(t, f.admin)
	f.must(f.server.Resume())
	r.until("the worker commits", func() bool {
		var n int
		err := f.admin.QueryRow("SELECT COUNT(*) FROM information_schema.processlist WHERE user = 'unstale' AND info = 'COMMIT'").Scan(&n)
		f.must(err)
		return n > 0
	})
	r.signal(syscall.SIGKILL)
	r.end()
	release()
	testenv.Eventually(t, "the server commits", func() bool { return f.count("cache_outbox") == 0 })
	f.start("--once").wantExit(exitDone)
	f.checkDone(rows)
}
