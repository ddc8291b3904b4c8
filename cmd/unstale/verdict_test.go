package main

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/unstale/unstale/internal/testenv"
)

// A judged is a world whose status is checked.
type judged struct {
	*world
	last struct {
		verdictObject
		Workers []workerObject
	}
	code int
}

// look reads the status.
func (j *judged) look() {
	j.t.Helper()
	r := call(j.t, j.env, "status", "--json")
	j.last.Causes, j.last.Workers = nil, nil
	if err := json.Unmarshal([]byte(r.out), &j.last); err != nil {
		j.t.Fatalf("%v: %+v", err, r)
	}
	j.code = r.code
}

// exits are the exit codes of the levels.
var exits = map[string]int{"fresh": exitDone, "stale": exitStale, "unknown": exitUnknown}

// says waits until the first line contains all parts, and then checks the level and its exit code.
func (j *judged) says(level string, parts ...string) {
	j.t.Helper()
	defer func() {
		if j.t.Failed() {
			j.t.Logf("it says: %+v", j.last)
		}
	}()
	testenv.Eventually(j.t, fmt.Sprintf("the status is %s: %q", level, parts), func() bool {
		j.look()
		return j.last.Verdict == level && !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(j.last.Says, part) })
	})
	if j.code != exits[level] {
		j.t.Errorf("%s has exit code %d", level, j.code)
	}
}

// has reports whether a cause is among those of the last look.
func (j *judged) has(cause string) bool {
	return slices.ContainsFunc(j.last.Causes, func(c causeObject) bool { return c.Cause == cause })
}

func (j *judged) exec(statements ...string) {
	j.t.Helper()
	for _, s := range statements {
		if _, err := j.db.ExecContext(j.t.Context(), s); err != nil {
			j.t.Fatalf("%s: %v", s, err)
		}
	}
}

func (j *judged) redisDo(command string) {
	j.t.Helper()
	args := []any{}
	for _, word := range strings.Fields(command) {
		args = append(args, word)
	}
	if err := j.redis.Do(j.t.Context(), args...).Err(); err != nil {
		j.t.Fatalf("%s: %v", command, err)
	}
}

// pauses pauses the one worker, and waits until it rests.
func (j *judged) pauses(args ...string) {
	j.t.Helper()
	j.must(call(j.t, j.env, append([]string{"pause"}, args...)...))
	testenv.Eventually(j.t, "the worker pauses", func() bool { j.look(); return j.last.Workers[0].State == "paused" })
}

func (j *judged) must(r result) {
	j.t.Helper()
	if r.code != exitDone {
		j.t.Fatalf("%+v", r)
	}
}

func (j *judged) writeMap(text string) {
	j.t.Helper()
	if err := os.WriteFile(j.env["UNSTALE_MAP"], []byte(text), 0o600); err != nil {
		j.t.Fatal(err)
	}
}

// others creates or removes 200,000 unrelated keys, in steps that do not block other clients.
func (j *judged) others(command string, value ...any) {
	j.t.Helper()
	const script = "for i = 1, 10000 do redis.call(ARGV[1], 'other:' .. ARGV[2] .. ':' .. i, unpack(ARGV, 3)) end return 1"
	for step := range 20 {
		if err := j.redis.Eval(j.t.Context(), script, nil, append([]any{command, step}, value...)...).Err(); err != nil {
			j.t.Fatal(err)
		}
	}
}

const fresh = "nothing is stale: all rows "

// It names the problem of Redis: unavailable, a missing permission, lost writes; and rows that fail
// because of it.
func TestVerdictOnRedis(t *testing.T) {
	t.Parallel()
	j := &judged{world: newWorld(t)}
	j.writeMap("version: 1\nentities:\n  thing: {keys: [\"shop:thing:{id}\"]}\n  list: {patterns: [\"shop:list:{id}:*\"]}\n  tag: {sets: [\"tag:{id}\"]}\n")
	r := j.start("--worker", "web-1", "--retry-delay", "1s", "--sweep-share", "0.01")
	j.says("fresh", fresh)
	second := j.start("--worker", "web-2", "--redis-url", "redis://127.0.0.1:1")
	testenv.Eventually(t, "one worker's outage is a note", func() bool { j.look(); return j.has("worker_outage") && j.last.Verdict == "fresh" })
	second.signal(syscall.SIGTERM)
	second.wantExit(exitDone)
	if err := j.server.Pause(); err != nil {
		t.Fatal(err)
	}
	j.says("unknown", "worker web-1 is kept from working (redis timeout)", "nothing waits")
	j.enqueue(1)
	j.says("stale", "worker web-1 is kept from working (redis timeout)", "1 row waits", "docs/operations.md#outages")
	if err := j.server.Resume(); err != nil {
		t.Fatal(err)
	}
	j.says("fresh", fresh)

	j.redisDo("acl setuser default -scan")
	j.exec("INSERT INTO cache_outbox (entity, entity_id) VALUES ('list', '7')")
	j.says("stale", "sweeps wait, and all fail in worker web-1", "+scan", "docs/operations.md#sweeps")
	j.redisDo("acl setuser default +scan")
	// it would be tried again within a minute
	j.exec("DELETE FROM cache_outbox_sweeps", "DELETE FROM cache_outbox_sweeper WHERE name = 'failed'")
	j.says("fresh", fresh)

	j.others("set", "x")
	j.exec("INSERT INTO cache_outbox (entity, entity_id) VALUES ('list', '8')")
	j.says("stale", "1 sweep of patterns or index sets not yet carried out; wait")
	j.others("unlink")
	j.says("fresh", fresh)
	if err := j.redis.Set(t.Context(), "tag:7", "not a set", 0).Err(); err != nil {
		t.Fatal(err)
	}
	j.exec("INSERT INTO cache_outbox (entity, entity_id) VALUES ('tag', '7')")
	j.says("stale", "Redis refuses 1 sweep, the last: ", "WRONGTYPE")
	j.exec("DELETE FROM cache_outbox_sweeps WHERE attempts > 0")
	if err := j.redis.Del(t.Context(), "tag:7").Err(); err != nil {
		t.Fatal(err)
	}
	j.says("fresh", fresh)

	j.redisDo("acl setuser default resetkeys ~unstale:* ~lock:*")
	j.enqueue(1)
	j.says("stale", "tried again after a failure (redis_refused): 1 row, ", "unstale delayed list --reason redis_refused")
	j.redisDo("acl setuser default allkeys")
	j.says("fresh", fresh)
	j.exec("INSERT INTO cache_outbox (entity, entity_id) VALUES ('nonsense', '7')")
	j.says("stale", "1 dead letter (unknown_entity: 1), whose keys may be stale; see: unstale dead list")
	j.ages()
	j.must(call(t, j.env, "dead", "discard", "--all"))
	j.says("fresh", fresh)

	// Redis goes back in time, and another session has locked the batches to heal.
	j.setKeys(3)
	j.redisDo("save")
	j.enqueue(3)
	testenv.Eventually(t, "the keys go", func() bool { return j.keys() == 0 && j.count("cache_outbox") == 0 })
	// new batches have their place
	holder, err := j.db.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = holder.Rollback() }() // it has ended by then
	if _, err := holder.Exec("SELECT id FROM cache_outbox_journal FORCE INDEX (PRIMARY) FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	if err := j.server.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := j.server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	j.says("stale", "Redis went back to older data, so removed keys are there again, and worker web-1 unlinks them; wait")
	if err := holder.Rollback(); err != nil {
		t.Fatal(err)
	}
	j.says("fresh", fresh)
	r.signal(syscall.SIGTERM)
	r.wantExit(exitDone)

	// A running replay is reported; here Redis delays it.
	if err := j.server.Pause(); err != nil {
		t.Fatal(err)
	}
	replayed := make(chan result, 1)
	go func() { replayed <- call(t, j.env, "replay", "--all", "--redis-timeout", "5s") }()
	testenv.Eventually(t, "the replay shows", func() bool { j.look(); return j.has("replay") })
	if err := j.server.Resume(); err != nil {
		t.Fatal(err)
	}
	j.must(<-replayed)
	if j.look(); j.has("replay") {
		t.Errorf("a replay that is over: %+v", j.last)
	}
	j.exec("UPDATE cache_outbox_journal SET epoch = 'damaged' ORDER BY id LIMIT 1")
	if j.look(); !j.has("journal_damaged") {
		t.Errorf("%+v", j.last)
	}
}

// status --watch writes a line at each look where no terminal is, and an object with --json; what
// cannot be read is unknown, and Ctrl-C ends it with 0.
func TestWatch(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, args := range [][]string{{"5s"}, {"--watch", "soon"}, {"--watch=1ms"}, {"--watch", "2h"}, {"--watch", "1s", "x"}} {
		if r := call(t, w.env, append([]string{"status"}, args...)...); r.code != exitUsage {
			t.Errorf("%q: %+v", args, r)
		}
	}
	for _, asJSON := range []bool{false, true} {
		args := []string{"status", "--watch", "100ms"}
		if asJSON {
			args = append(args, "--json")
		}
		cmd := child(t.Context(), w.env, args...)
		pipe, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(pipe)
		next := func(part string) {
			t.Helper()
			for lines.Scan() {
				if asJSON && !json.Valid(lines.Bytes()) {
					t.Errorf("not an object: %s", lines.Text())
				}
				if strings.Contains(lines.Text(), part) {
					return
				}
			}
			t.Fatalf("no line with %q", part)
		}
		next("unknown: no worker has been heard within a day; nothing waits")
		w.enqueue(1)
		next("STALE since ")
		if _, err := w.db.Exec("RENAME TABLE cache_outbox_dead TO elsewhere"); err != nil {
			t.Fatal(err)
		}
		next("unknown: read status: ")
		if _, err := w.db.Exec("RENAME TABLE elsewhere TO cache_outbox_dead"); err != nil {
			t.Fatal(err)
		}
		next("STALE since ")
		if err := cmd.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, pipe); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("it ended with %v", err)
		}
		if _, err := w.db.Exec("DELETE FROM cache_outbox"); err != nil {
			t.Fatal(err)
		}
	}
}

// A watched is a "status --watch" in a separate process.
type watched struct {
	t     testing.TB
	lines *bufio.Scanner
}

func (w *world) watch() *watched {
	w.t.Helper()
	cmd := child(context.Background(), w.env, "status", "--watch", "100ms")
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return &watched{w.t, bufio.NewScanner(pipe)}
}

// next returns the next sentence.
func (w *watched) next() string {
	w.t.Helper()
	if !w.lines.Scan() {
		w.t.Fatalf("the watch has ended: %v", w.lines.Err())
	}
	_, said, _ := strings.Cut(w.lines.Text(), "  ")
	return said
}

// until returns the first sentence that does not begin so.
func (w *watched) until(not string) (said string) {
	w.t.Helper()
	for said = w.next(); strings.HasPrefix(said, not); {
		said = w.next()
	}
	return said
}

// The first sentence after MySQL has stopped answering names that, and a missing table advises no
// grant.
func TestVerdictOnMySQLItself(t *testing.T) {
	t.Parallel()
	f := newFrail(t)
	r := f.start()
	r.until("the worker is ready", func() bool { return r.ready() == http.StatusOK })
	w := f.watch()
	w.until("unknown: no worker")
	f.do("RENAME TABLE shop.cache_outbox_dead TO shop.elsewhere")
	if said := w.until("nothing is stale"); !strings.Contains(said, "cache_outbox_dead' doesn't exist; if the table was renamed, rename it back") || strings.Contains(said, "grant") {
		t.Error(said)
	}
	f.do("RENAME TABLE shop.elsewhere TO shop.cache_outbox_dead", "RENAME TABLE shop.cache_outbox TO shop.elsewhere")
	r.until("the worker names it", func() bool {
		_, body := r.readyz()
		return strings.Contains(body, "cache_outbox' doesn't exist; if the table was renamed") && !strings.Contains(body, "grant")
	})
	f.do("RENAME TABLE shop.elsewhere TO shop.cache_outbox")
	w.until("unknown: ")
	f.must(f.mysql.Pause())
	if said := w.until("nothing is stale"); !strings.HasPrefix(said, "unknown: MySQL does not answer in time; check that it runs, and that this host reaches it; ") {
		t.Error(said)
	}
	f.must(f.mysql.Resume())
}

// A server that accepts connections and does not greet is asked once, since each question waits for
// the limit of a connection.
func TestStatusAsksASilentServerOnce(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	testenv.Must(t, err)
	connections := make(chan net.Conn, 10)
	go func() {
		defer close(connections)
		for {
			conn, err := silent.Accept()
			if err != nil {
				return
			}
			connections <- conn
		}
	}()
	r := call(t, map[string]string{"MYSQL_DSN": "u@tcp(" + silent.Addr().String() + ")/shop"}, "status")
	if want := "unstale: whether anything is stale is unknown: MySQL does not answer in time; "; !strings.HasPrefix(r.err, want) || r.code != exitFail {
		t.Errorf("got %+v, want %q", r, want)
	}
	testenv.Must(t, silent.Close())
	asked := 0
	for conn := range connections {
		asked++
		_ = conn.Close()
	}
	if asked != 1 {
		t.Errorf("asked %d times", asked)
	}
}

// Before it is known whether a row is in a batch or locked, no sentence advises more workers.
func TestVerdictInTheFirstSecondsOfALock(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.start("--worker", "web-1")
	j := &judged{world: w}
	j.says("fresh", fresh)
	r.signal(syscall.SIGSTOP) // which must not claim the row before it is locked
	w.enqueue(1)
	holder, err := w.db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = holder.Rollback() }() // it has ended by then
	if _, err := holder.Exec("SELECT * FROM cache_outbox WHERE id = 1 FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	r.signal(syscall.SIGCONT)
	undecided := 0
	testenv.Eventually(t, "the lock is named", func() bool {
		j.look()
		if strings.Contains(j.last.Says, "more workers") {
			t.Error(j.last.Says)
		}
		if strings.Contains(j.last.Says, "1 row waits, and workers find none to claim: it is in a batch, or a session has it locked; wait") {
			undecided++
		}
		return strings.Contains(j.last.Says, "row 1 (thing) waits, and workers pass it over: a session has it locked")
	})
	if undecided == 0 {
		t.Error("nothing was said before that")
	}
	if err := holder.Rollback(); err != nil {
		t.Fatal(err)
	}
	j.says("fresh", fresh)
}

// A Redis that was given and does not answer is named, and no flag advised.
func TestVerdictWithoutMySQLsWorkersAndRedis(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.env["REDIS_URL"] = "redis://127.0.0.1:1"
	r := call(t, w.env, "status")
	said, _, _ := strings.Cut(r.out, "\n")
	if !strings.Contains(said, "if none runs, start one: unstale run; the status that workers publish in Redis cannot be read either: redis outage (network): ") || strings.Contains(said, "--redis-url") {
		t.Error(said)
	}
}

// Everything that says whether something is stale has the causes of package status, in its words:
// status, its watch, doctor, and the console.
func TestOneJudge(t *testing.T) {
	t.Parallel()
	j := &judged{world: newWorld(t)}
	_, b := j.withConsole()
	j.says("fresh", fresh)
	for cause, c := range map[string]struct{ begins, ends string }{
		"dead":         {"INSERT INTO cache_outbox_dead (entity, entity_id, created_at, died_at, first_id, reason, error, map_version) VALUES ('nonsense', '7', UTC_TIMESTAMP(6), UTC_TIMESTAMP(6), 1, 'unknown_entity', '', '')", "DELETE FROM cache_outbox_dead"},
		"delayed":      {"INSERT INTO cache_outbox_delayed (entity, entity_id, due_at, attempts, reason) VALUES ('thing', '1', UTC_TIMESTAMP(6) + INTERVAL 1 HOUR, 1, 'lookup_slow')", "DELETE FROM cache_outbox_delayed"},
		"few_ids_left": {"ALTER TABLE cache_outbox_dead AUTO_INCREMENT = 18446744073709551000", "TRUNCATE TABLE cache_outbox_dead"},
	} {
		j.exec(c.begins)
		j.look()
		if !j.has(cause) {
			t.Fatalf("no %s in %+v", cause, j.last)
		}
		what := j.last.Causes[0].What
		said := map[string]string{"status": call(t, j.env, "status").out, "doctor": call(t, j.env, "doctor", "--check", "queue", "--json").out}
		testenv.Eventually(t, "the console says "+what, func() bool { // which reads once per second
			_, page := b.get("/")
			return strings.Contains(html.UnescapeString(page), what)
		})
		if j.last.Causes[0].Level != "fresh" { // the watch shows the first line
			said["watch"] = j.watch().next()
		}
		for who, text := range said {
			if !strings.Contains(text, what) {
				t.Errorf("%s does not say %q:\n%s", who, what, text)
			}
		}
		j.exec(c.ends)
	}
}
