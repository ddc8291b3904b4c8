//go:build soak

package main

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/unstale/unstale/internal/testenv"
)

// A database that lost batches is older than Redis until the operator unlinks the names of the map.
// A copy of it, which has its ID, is reported until it has its own.
func TestRestoredAndCopiedDatabases(t *testing.T) {
	t.Parallel()
	j := &judged{world: newWorld(t)}
	r := j.start("--worker", "web-1")
	j.says("fresh", fresh)
	j.enqueue(1)
	testenv.Eventually(t, "the batch is published", func() bool {
		return strings.Contains(fmt.Sprint(j.redis.HGetAll(t.Context(), "unstale:sources").Val()), `"last_id":1}`)
	})
	r.signal(syscall.SIGTERM)
	r.wantExit(exitDone)
	// Data that the backup lacks: two more batches, which are published in Redis.
	for field, text := range j.redis.HGetAll(t.Context(), "unstale:sources").Val() {
		j.redis.HSet(t.Context(), "unstale:sources", field, strings.Replace(text, `"last_id":1}`, `"last_id":3}`, 1))
	}
	j.setKeys(2)
	r = j.start("--worker", "web-1")
	j.says("stale", "the database is older than Redis", "has lost batch 3 and then ended with 1", "unstale source restored")
	if r := call(t, j.env, "doctor", "--check", "databases"); r.code != exitFail || !strings.Contains(r.out, "older than Redis") {
		t.Errorf("%+v", r)
	}
	if r := call(t, j.env, "source", "restored", "--map", j.env["UNSTALE_MAP"]); r.code != exitDone || !strings.HasPrefix(r.out, "requested 1 sweep;") {
		t.Fatalf("%+v", r)
	}
	j.says("fresh", fresh)
	testenv.Eventually(t, "the names of the map are swept", func() bool { return j.keys() == 0 })

	var source string
	if err := j.db.QueryRow("SELECT id FROM cache_outbox_source").Scan(&source); err != nil {
		t.Fatal(err)
	}
	copied := &judged{world: newWorld(t)}
	copied.env["REDIS_URL"] = j.env["REDIS_URL"]
	copied.exec("UPDATE cache_outbox_source SET id = '" + source + "'")
	c := copied.start("--worker", "copy-1")
	j.says("unknown", "two databases have one ID", "unstale source replace")
	if r := call(t, j.env, "doctor", "--check", "databases"); r.code != exitFail || !strings.Contains(r.out, "another database has the ID of this one") {
		t.Errorf("%+v", r)
	}
	if r := call(t, copied.env, "source", "replace", "wrong"); r.code != exitFail || !strings.Contains(r.err, "is "+source+" and not wrong; nothing is changed") {
		t.Errorf("%+v", r)
	}
	if r := call(t, copied.env, "source", "replace", source); r.code != exitDone || !strings.HasPrefix(r.out, "the ID is now ") {
		t.Errorf("%+v", r)
	}
	c.signal(syscall.SIGTERM)
	c.wantExit(exitDone)
	c = copied.start("--worker", "copy-1")
	testenv.Eventually(t, "two IDs", func() bool { j.look(); return !j.has("one_id") && j.last.Verdict == "fresh" })
	if r := call(t, j.env, "doctor", "--check", "databases"); r.code != exitDone {
		t.Errorf("%+v", r)
	}
	for _, r := range []*running{r, c} {
		r.signal(syscall.SIGTERM)
		r.wantExit(exitDone)
	}
}
