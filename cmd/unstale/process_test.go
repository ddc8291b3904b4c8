package main

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/internal/storetest/schematest"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/outbox"
)

const thingMap = "version: 1\nentities: {thing: {keys: [\"shop:thing:{id}\"]}}\n"

// A world has a migrated database, a Redis process that can be frozen, and a map.
type world struct {
	t      testing.TB
	db     *sql.DB
	server *servers.Redis
	redis  *redis.Client
	env    map[string]string // of the children
}

func newWorld(t testing.TB) *world {
	t.Helper()
	env, server := testenv.MySQL(t), testenv.OwnRedis(t)
	schematest.Up(t, env.DB)
	file := filepath.Join(t.TempDir(), "map.yaml")
	if err := os.WriteFile(file, []byte(thingMap), 0o600); err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	return &world{t: t, db: env.DB, server: server, redis: client, env: map[string]string{
		"MYSQL_DSN": env.DSN, "REDIS_URL": server.URL(), "UNSTALE_MAP": file, "UNSTALE_LISTEN": "-",
	}}
}

// use replaces the MySQL of the world with a new one.
func (w *world) use(own *servers.MySQL) {
	w.t.Helper()
	admin, err := sql.Open("mysql", own.DSN(""))
	if err != nil {
		w.t.Fatal(err)
	}
	defer admin.Close()
	if _, err := admin.ExecContext(w.t.Context(), "CREATE DATABASE shop"); err != nil {
		w.t.Fatal(err)
	}
	if w.db, err = sql.Open("mysql", own.DSN("shop")); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = w.db.Close() })
	w.env["MYSQL_DSN"] = own.DSN("shop")
	schematest.Up(w.t, w.db)
}

// fill sets keys and enqueues their rows.
func (w *world) fill(n int) {
	w.t.Helper()
	w.setKeys(n)
	w.enqueue(n)
}

func (w *world) setKeys(n int) {
	w.t.Helper()
	pipe := w.redis.Pipeline()
	for i := range n {
		pipe.Set(w.t.Context(), fmt.Sprint("shop:thing:", i+1), "old", time.Hour)
	}
	if _, err := pipe.Exec(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) enqueue(n int) {
	w.t.Helper()
	invs := make([]outbox.Invalidation, n)
	for i := range invs {
		invs[i] = outbox.Invalidation{Entity: "thing", ID: fmt.Sprint(i + 1)}
	}
	err := outbox.InTx(w.t.Context(), w.db, func(tx *sql.Tx) error { return outbox.Enqueue(w.t.Context(), tx, invs...) })
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) count(query string) (n int) {
	w.t.Helper()
	if err := w.db.QueryRow("SELECT COUNT(*) FROM " + query).Scan(&n); err != nil {
		w.t.Fatal(err)
	}
	return n
}

// keys counts what is in Redis, the state of workers left out.
func (w *world) keys() (n int) {
	w.t.Helper()
	it := w.redis.Scan(w.t.Context(), 0, "", 10_000).Iterator()
	for it.Next(w.t.Context()) {
		if !strings.HasPrefix(it.Val(), "unstale:") || strings.HasPrefix(it.Val(), "unstale:set:") {
			n++
		}
	}
	if err := it.Err(); err != nil {
		w.t.Fatal(err)
	}
	return n
}

// probeInterval is the least time between two probes of claimed. A worker that claims during a
// probe gets nothing, and then checks Redis instead, which may take seconds. So probes must be
// rare.
const probeInterval = 100 * time.Millisecond

// claimed reports whether a session has rows locked: not all existing rows can be locked.
func (w *world) claimed() bool {
	w.t.Helper()
	time.Sleep(probeInterval)
	free := w.lockable()
	return free < w.count("cache_outbox")
}

// lockable counts the rows that no session has locked.
func (w *world) lockable() (free int) {
	w.t.Helper()
	tx, err := w.db.BeginTx(w.t.Context(), &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	rows, err := tx.Query("SELECT id FROM cache_outbox FORCE INDEX (PRIMARY) FOR UPDATE SKIP LOCKED")
	if err != nil {
		w.t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		free++
	}
	if err := rows.Err(); err != nil {
		w.t.Fatal(err)
	}
	return free
}

// checkDone: every key is gone, no row is left, and each was settled and counted once.
func (w *world) checkDone(rows int) {
	w.t.Helper()
	if keys, left := w.keys(), w.count("cache_outbox"); keys != 0 || left != 0 {
		w.t.Errorf("%d keys and %d rows left", keys, left)
	}
	settled := w.settled()
	if len(settled) != rows {
		w.t.Errorf("%d of %d rows in the journal", len(settled), rows)
	}
	for id, n := range settled {
		if n != 1 {
			w.t.Errorf("row %d was settled %d times", id, n)
		}
	}
	w.checkCounted(rows)
}

// checkCounted: cache_outbox_minutes has each settled row once.
func (w *world) checkCounted(rows int) {
	w.t.Helper()
	var counted int
	if err := w.db.QueryRow("SELECT COALESCE(SUM(rows_settled), 0) FROM cache_outbox_minutes").Scan(&counted); err != nil {
		w.t.Fatal(err)
	}
	if counted != rows {
		w.t.Errorf("%d of %d settled rows are counted", counted, rows)
	}
}

// settled counts the journal's entries of each row.
func (w *world) settled() map[uint64]int {
	w.t.Helper()
	settled := map[uint64]int{}
	for _, e := range w.entries() {
		settled[e.ID]++
	}
	return settled
}

// entries returns all of the journal's.
func (w *world) entries() (entries []store.JournalEntry) {
	w.t.Helper()
	rows, err := w.db.Query("SELECT body FROM cache_outbox_journal")
	if err != nil {
		w.t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var body []byte
		if err := rows.Scan(&body); err != nil {
			w.t.Fatal(err)
		}
		batch, err := store.DecodeEntries(body)
		if err != nil {
			w.t.Fatal(err)
		}
		entries = append(entries, batch...)
	}
	return entries
}

// A running is an "unstale run" in a separate process.
type running struct {
	t    testing.TB
	cmd  *exec.Cmd
	log  *syncBuffer
	over chan struct{} // closed when the process has ended
}

func (w *world) start(args ...string) *running {
	w.t.Helper()
	r := &running{t: w.t, log: &syncBuffer{}, over: make(chan struct{})}
	r.cmd = child(context.Background(), maps.Clone(w.env), append([]string{"run"}, args...)...)
	r.cmd.Stderr = r.log
	if err := r.cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	go func() { _ = r.cmd.Wait(); close(r.over) }() // ProcessState has the exit status
	w.t.Cleanup(func() {
		_ = r.cmd.Process.Signal(syscall.SIGCONT)
		_ = r.cmd.Process.Kill()
		<-r.over
		if w.t.Failed() {
			w.t.Logf("%v said:\n%s", r.cmd.Args[1:], r.log)
		}
	})
	return r
}

func (r *running) signal(s os.Signal) {
	r.t.Helper()
	if err := r.cmd.Process.Signal(s); err != nil {
		r.t.Fatal(err)
	}
}

// end waits for the process and returns how it ended.
func (r *running) end() *os.ProcessState {
	r.t.Helper()
	select {
	case <-r.over:
	case <-time.After(patience):
		r.t.Fatalf("the process does not end:\n%s", r.log)
	}
	return r.cmd.ProcessState
}

func (r *running) wantExit(code int) {
	r.t.Helper()
	if got := r.end().ExitCode(); got != code {
		r.t.Errorf("exit code %d, wanted %d", got, code)
	}
}

// patience bounds waits for what must happen; it is never waited out when all is well.
const patience = 60 * time.Second

// until waits for a condition that the process brings about, and fails when the process ends
// before.
func (r *running) until(what string, condition func() bool) {
	r.t.Helper()
	if testenv.Comes(patience, r.over, condition) {
		return
	}
	select {
	case <-r.over:
		r.t.Fatalf("%s: the process ended with %s", what, r.cmd.ProcessState)
	default:
		r.t.Fatalf("%s: not within %s", what, patience)
	}
}

// A syncBuffer takes what a process says while the test reads it.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func (b *syncBuffer) has(part string) bool { return strings.Contains(b.String(), part) }
