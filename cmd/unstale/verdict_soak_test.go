//go:build soak

package main

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/outbox"
)

// deprecatedMap is one that only the next release refuses.
const deprecatedMap = `version: 1
params:
  other: {lookup: {by: [id], sql: "SELECT id, other FROM others WHERE id IN (?) AND name = '{name}' LIMIT 1"}}
entities: {thing: {params: [other], keys: ["x:{other}"]}}
`

// The first line of status names the cause, the time and the cure: without a worker, in a pause,
// behind a lock, with a map that is refused.
func TestVerdictOnWorkers(t *testing.T) {
	t.Parallel()
	j := &judged{world: newWorld(t)}
	j.says("unknown", "unknown: no worker has been heard within a day; nothing waits, but nobody looks", "start one: unstale run")
	j.enqueue(1)
	j.says("stale", "STALE since ", " UTC (", "no worker has been heard within a day; 1 row waits; start one: unstale run")
	r := j.start("--worker", "web-1")
	j.says("fresh", fresh)
	if len(j.last.Workers) != 1 || j.last.Workers[0].Name != "web-1" || j.last.Workers[0].State != "working" || j.last.Workers[0].Drained == nil {
		t.Errorf("%+v", j.last.Workers)
	}
	tx, err := j.db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }() // it has ended by then
	if _, err := tx.Exec("INSERT INTO cache_outbox (entity, entity_id, created_at) VALUES ('thing', '1', UTC_TIMESTAMP(6) - INTERVAL 1 HOUR)"); err != nil {
		t.Fatal(err)
	}
	j.says("fresh", fresh) // that is not committed
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	j.says("fresh", fresh)

	j.pauses("--reason", "moving redis", "--until-resumed")
	j.says("unknown", "all workers are paused by ", "(moving redis); nothing waits", "unstale resume")
	j.enqueue(2)
	j.exec("UPDATE cache_outbox SET created_at = UTC_TIMESTAMP(6) - INTERVAL 3 MINUTE",
		// which must not hide the other one
		"UPDATE cache_outbox SET created_at = UTC_TIMESTAMP(6) + INTERVAL 1 HOUR ORDER BY id LIMIT 1")
	j.says("stale", " (3 min): all workers are paused by ", "2 rows wait")
	holder, err := j.db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = holder.Rollback() }() // it has ended by then
	j.exec("INSERT INTO cache_outbox_delayed (entity, entity_id, due_at) VALUES ('thing', '9', UTC_TIMESTAMP(6) - INTERVAL 1 MINUTE)")
	for _, table := range []string{"cache_outbox", "cache_outbox_delayed"} {
		if _, err := holder.Exec("SELECT * FROM " + table + " FORCE INDEX (PRIMARY) FOR UPDATE"); err != nil {
			t.Fatal(err)
		}
	}
	j.must(call(t, j.env, "resume"))
	j.says("stale", " (3 min): row ", "(thing) waits, and workers pass it over", "an account with PROCESS")
	if !j.has("created_ahead") || !j.has("locked_delayed") || j.has("backlog") {
		t.Errorf("%+v", j.last)
	}
	if err := holder.Rollback(); err != nil {
		t.Fatal(err)
	}
	j.says("fresh", fresh)

	j.writeMap("version: 1\nentities: {thing: {keys: [\"x:{nope}\"]}}\n")
	j.says("unknown", "worker web-1 refuses the map's file as it is now", "nope", "unstale map check")
	j.writeMap(deprecatedMap)
	testenv.Eventually(t, "a note about the map", func() bool { j.look(); return j.has("map_deprecated") && j.last.Verdict == "fresh" })
	if c := j.last.Causes[0]; c.Level != "fresh" || c.Cure != "unstale map check" || !strings.Contains(c.What, `worker web-1 uses a map that the next release refuses: `) ||
		!strings.Contains(c.What, `:3:35: "LIMIT": a lookup is asked for several IDs together`) || !strings.Contains(c.What, "(and 1 more)") || j.last.Workers[0].MapWarning == "" {
		t.Errorf("%+v", j.last)
	}
	j.writeMap(thingMap)
	testenv.Eventually(t, "no note about the map", func() bool { j.look(); return !j.has("map_deprecated") })
	j.says("fresh", fresh)
	r.signal(syscall.SIGTERM)
	r.wantExit(exitDone)
	j.says("unknown", "the last was web-1, which was stopped")

	r = j.start("--worker", "web-2")
	j.says("fresh", fresh)
	r.signal(syscall.SIGKILL)
	r.end()
	j.exec("UPDATE cache_outbox_workers SET seen_at = seen_at - INTERVAL 3 MINUTE")
	j.says("unknown", "no worker has been heard for ", "the last was web-2; nothing waits")
}

// A row that another session has locked is named although rows come faster than the worker takes
// them.
func TestVerdictOnAHeldRowBehindABacklog(t *testing.T) {
	t.Parallel()
	j := &judged{world: newWorld(t)}
	j.enqueue(1)
	holder, err := j.db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = holder.Rollback() }() // it has ended by then
	if _, err := holder.Exec("SELECT * FROM cache_outbox WHERE id = 1 FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	writing, done := context.WithCancel(t.Context())
	written := make(chan error, 1)
	go func() { written <- j.keepWaiting(writing, 1000) }()
	testenv.Eventually(t, "rows wait", func() bool { return j.count("cache_outbox") > 1000 })
	r := j.start("--batch-rows", "1", "--batch-keys", "1")
	defer func() {
		if t.Failed() {
			t.Logf("it says: %+v", j.last)
		}
	}()
	testenv.Eventually(t, "the held row comes first", func() bool {
		j.look()
		return strings.Contains(j.last.Says, "row 1 of cache_outbox has waited for ") && strings.Contains(j.last.Says, "another session has it locked; end that transaction")
	})
	if !j.has("locked") || j.has("backlog") || len(j.last.Workers) != 1 || j.last.Workers[0].Stalled != "held" {
		t.Errorf("%+v", j.last)
	}
	if r := call(t, j.env, "doctor", "--check", "queue"); r.code != exitFail || !strings.Contains(r.out, "another session has it locked") && !strings.Contains(r.out, "workers pass it over") {
		t.Errorf("%+v", r)
	}
	done()
	if err := <-written; err != nil {
		t.Error(err)
	}
	if err := holder.Rollback(); err != nil {
		t.Fatal(err)
	}
	j.exec("DELETE FROM cache_outbox") // rather than wait for 1,000 batches
	j.says("fresh", fresh)
	r.signal(syscall.SIGTERM)
	r.wantExit(exitDone)
}

// keepWaiting inserts rows until ctx ends, so that at least n wait most of the time.
func (j *judged) keepWaiting(ctx context.Context, n int) error {
	rows := make([]outbox.Invalidation, n)
	for i := range rows {
		rows[i] = outbox.Invalidation{Entity: "thing", ID: fmt.Sprint(i)}
	}
	for {
		var waiting int
		err := j.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM cache_outbox").Scan(&waiting)
		if err == nil && waiting < n {
			err = outbox.InTx(ctx, j.db, func(tx *sql.Tx) error { return outbox.Enqueue(ctx, tx, rows...) })
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		}
	}
}

// More rows than one worker processes at a time are a backlog, and so are due rows.
func TestVerdictOnABacklog(t *testing.T) {
	t.Parallel()
	j := &judged{world: newWorld(t)}
	r := j.start("--batch-rows", "1", "--batch-keys", "1")
	j.says("fresh", fresh)
	j.pauses("--until-resumed")
	j.enqueue(8000)
	j.exec("UPDATE cache_outbox SET created_at = UTC_TIMESTAMP(6) - INTERVAL 2 HOUR")
	j.must(call(t, j.env, "resume"))
	j.says("stale", "(2 h): ", "rows wait, and workers are behind", "start more workers")
	r.signal(syscall.SIGKILL)
	r.end()
	j.exec("DELETE FROM cache_outbox", "INSERT INTO cache_outbox_delayed (entity, entity_id, due_at) VALUES ('thing', '1', UTC_TIMESTAMP(6) - INTERVAL 1 MINUTE)",
		"UPDATE cache_outbox_workers SET seen_at = seen_at - INTERVAL 1 MINUTE")
	j.says("stale", "no worker has been heard for", "delayed rows that are due wait")
}
