package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/unstale/unstale/internal/testenv"
)

// slowRedis lets a worker hang in UNLINK on a frozen Redis for longer than a batch may take.
var slowRedis = []string{"--redis-timeout", "5s"}

// startHolding starts a worker that holds rows in mid-batch: Redis freezes once the worker has
// found it well.
func (w *world) startHolding(rows int, args ...string) *running {
	w.t.Helper()
	w.setKeys(rows)
	r := w.start(append(args, slowRedis...)...)
	r.until("the worker works", func() bool { return r.log.has("working: mysql and redis answer") })
	if err := w.server.Pause(); err != nil {
		w.t.Fatal(err)
	}
	w.enqueue(rows)
	r.until("the worker holds the rows", w.claimed)
	return r
}

// Sentence 1: a worker that is killed in mid-batch loses nothing; another one finishes.
func TestKilledInMidBatch(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const rows = 500
	victim := w.startHolding(rows)
	victim.signal(syscall.SIGKILL)
	if state := victim.end(); state.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("ended with %s", state)
	}
	if err := w.server.Resume(); err != nil {
		t.Fatal(err)
	}
	if n := w.count("cache_outbox"); n != rows {
		t.Fatalf("%d rows after the kill", n)
	}
	w.start("--once").wantExit(exitDone)
	w.checkDone(rows)
}

// Sentence 9: SIGTERM ends a working worker with exit code 0 and nothing half done: what is settled
// is gone from Redis, what is not is untouched.
func TestTerminatedAtWork(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const rows = 20_000
	w.fill(rows)
	r := w.start("--batch-rows", "50")
	r.until("a batch is settled", func() bool { return w.count("cache_outbox_journal") > 0 })
	r.signal(syscall.SIGTERM)
	r.wantExit(exitDone)
	if !r.log.has("stopped, nothing is half done") {
		t.Errorf("log:\n%s", r.log)
	}
	settled, left := len(w.settled()), w.count("cache_outbox")
	if settled+left != rows || settled == rows {
		t.Errorf("%d settled, %d left of %d", settled, left, rows)
	}
	if keys := w.keys(); keys != left {
		t.Errorf("%d keys for %d rows", keys, left)
	}
	w.start("--once").wantExit(exitDone)
	w.checkDone(rows)
}

// A signal ends "run --once" after the current batch: it prints what it processed, and its exit
// code shows that rows are left.
func TestTerminatedWhileDraining(t *testing.T) {
	t.Parallel()
	for _, end := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		w := newWorld(t)
		const rows = 20_000
		w.fill(rows)
		r := w.start("--once", "--batch-rows", "50")
		r.until("a batch is settled", func() bool { return w.count("cache_outbox_journal") > 0 })
		r.signal(end)
		r.wantExit(128 + int(end))
		settled, left := len(w.settled()), w.count("cache_outbox")
		if settled+left != rows || settled == rows || w.keys() != left {
			t.Errorf("%d settled, %d left of %d, %d keys", settled, left, rows, w.keys())
		}
		said := fmt.Sprintf(`"msg":"stopped before all rows were processed, nothing is half done","rows":%d,`, settled)
		if !r.log.has(said) || !r.log.has("stopped; run it again for the rest") || r.log.has("context canceled") || r.log.has(`"msg":"drained"`) {
			t.Errorf("%s: wanted %s in:\n%s", end, said, r.log)
		}
	}
}

// So does one that comes before the first batch, while the server is asked or waits for a lock.
func TestTerminatedBeforeDraining(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.fill(1)
	holder, err := w.db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Close()
	if _, err := holder.ExecContext(t.Context(), "LOCK TABLES cache_outbox_version WRITE"); err != nil {
		t.Fatal(err)
	}
	r := w.start("--once")
	r.until("it waits for the table", func() bool {
		var n int
		err := w.db.QueryRow("SELECT COUNT(*) FROM information_schema.processlist WHERE db = DATABASE() AND state LIKE 'Waiting for table metadata lock%'").Scan(&n)
		return err == nil && n > 0
	})
	r.signal(syscall.SIGTERM)
	r.wantExit(143)
	if !r.log.has("stopped; run it again for the rest") || r.log.has("context canceled") {
		t.Errorf("%s", r.log)
	}
}

// A second signal ends the process immediately in any state.
func TestSecondSignalEndsAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.startHolding(10, "--claim-timeout", "60s")
	r.signal(syscall.SIGTERM)
	r.until("the second signal ends it", func() bool { // once the first has been dealt with
		return r.cmd.Process.Signal(syscall.SIGTERM) != nil
	})
	r.wantExit(128 + int(syscall.SIGTERM))
	if err := w.server.Resume(); err != nil {
		t.Fatal(err)
	}
	w.start("--once").wantExit(exitDone)
	w.checkDone(10)
}

// Sentence 8: the rows of a worker that is frozen during a claim are free within the claim timeout.
// When it resumes, it settles nothing that it has lost, and continues.
func TestFrozenInMidClaim(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const rows = 100
	frozen := w.startHolding(rows, "--claim-timeout", "5s")
	for { // a batch gives up before the claim times out, so it may let go just before it freezes
		frozen.until("the worker holds the rows", w.claimed)
		frozen.signal(syscall.SIGSTOP)
		if w.claimed() {
			break
		}
		frozen.signal(syscall.SIGCONT)
	}
	frozen.until("the server throws the frozen worker out", func() bool { return !w.claimed() })
	if err := w.server.Resume(); err != nil {
		t.Fatal(err)
	}
	w.start("--once").wantExit(exitDone)
	w.checkDone(rows)
	frozen.signal(syscall.SIGCONT)
	w.fill(1)
	frozen.until("the thawed worker works", func() bool { return w.count("cache_outbox") == 0 })
	frozen.signal(syscall.SIGTERM)
	frozen.wantExit(exitDone)
	w.checkDone(rows + 1)
}

// A broken map at start: exit 1 with every fault, and no row is touched.
func TestBrokenMapAtStart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.fill(3)
	w.env["UNSTALE_MAP"] = writeFile(t, "version: 1\nentities:\n  thing: {keys: [\"shop:{nope}\"]}\n  coupon: {keys: [\"c:*\"], what: 1}\n")
	r := w.start()
	r.wantExit(exitFail)
	for _, part := range []string{"3 faults, no row was touched", ":3:", "nope", ":4:", "did you mean patterns?", "what"} {
		if !r.log.has(part) {
			t.Errorf("%q is not in:\n%s", part, r.log)
		}
	}
	if rows, keys := w.count("cache_outbox"), w.keys(); rows != 3 || keys != 3 {
		t.Errorf("%d rows, %d keys", rows, keys)
	}
}

// SIGHUP reads the map again. A broken one leaves the old in place with one error line, and a good
// one replaces it.
func TestReloadBySignal(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.start()
	r.until("the worker works", func() bool { return r.log.has("working") })
	replace := func(text string) {
		file := w.env["UNSTALE_MAP"]
		if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
		r.signal(syscall.SIGHUP)
	}
	replace("version: 1\nentities: {thing: {keys: [\"x:{nope}\"]}}\n")
	r.until("the broken map is refused", func() bool { return r.log.has("the new map is refused, the old one stays") })
	w.fill(1)
	r.until("the old map works", func() bool { return w.keys() == 0 })
	replace(strings.Replace(thingMap, "shop:thing", "shop:new", 1))
	r.until("the good map is loaded", func() bool { return r.log.has("map loaded") })
	r.signal(syscall.SIGTERM)
	r.wantExit(exitDone)
	if n := strings.Count(r.log.String(), "refused"); n != 1 {
		t.Errorf("refused %d times:\n%s", n, r.log)
	}
}

// An error that waiting cannot fix ends "run" with exit code 1 and contains the fix. So does an
// outage with --once.
func TestRunRefuses(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	bare := testenv.MySQL(t)
	cfg, err := mysql.ParseDSN(bare.DSN)
	if err != nil {
		t.Fatal(err)
	}
	cfg.DBName = "no_such_database"
	w.fill(1)
	for want, change := range map[string][]string{
		"run `unstale migrate up`":                 {"--mysql-dsn", bare.DSN},
		"no_such_database":                         {"--mysql-dsn", cfg.FormatDSN()},
		"redis outage":                             {"--once", "--redis-url", "redis://127.0.0.1:1"},
		"reach mysql":                              {"--once", "--mysql-dsn", "u:secret@tcp(127.0.0.1:1)/d"},
		"choose another address":                   {"--listen", "256.0.0.1:1"},
		"no such file":                             {"--map", "no/such/map.yaml"},
		"batch rows 0: wanted 1 to":                {"--batch-rows", "0"},
		"must begin with redis://":                 {"--redis-url", "http://user:secret@x"},
		"names no database":                        {"--mysql-dsn", "u:secret@tcp(127.0.0.1:1)/"},
		"must be from 50ms":                        {"--redis-timeout", "1ms"},
		`log-level "loud": must be`:                {"--log-level", "loud"},
		"unknown argument \"x\"":                   {"x"},
		"--message-key: a message key has 6 bytes": {"--message-key", "secret"},
		"claim timeout 1s: wanted whole":           {"--claim-timeout", "1s"},
	} {
		r := w.start(change...)
		if code := r.end().ExitCode(); code != exitFail && code != exitUsage || !r.log.has(want) || r.log.has("secret") {
			t.Errorf("%q: exit code %d, wanted %q in:\n%s", change, code, want, r.log)
		}
	}
	if w.count("cache_outbox") != 1 {
		t.Error("the row is gone")
	}
}

// The log is JSON where no terminal is, shows the settings without the secrets, and the port
// answers.
func TestSettingsAndPort(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if err := w.redis.ConfigSet(t.Context(), "requirepass", "hush-hush").Err(); err != nil {
		t.Fatal(err)
	}
	w.env["REDIS_URL"] = "redis://:hush-hush@" + w.server.Addr() + "/3"
	w.env["OTEL_EXPORTER_OTLP_ENDPOINT"], w.env["OTEL_EXPORTER_OTLP_HEADERS"] = "http://user:hush-hush@127.0.0.1:1/hush-hush", "key=hush-hush"
	w.env["UNSTALE_MESSAGE_KEY"] = "hush-hush-hush-hush"
	r := w.start("--listen", "127.0.0.1:0")
	r.until("the worker works", func() bool { return r.log.has("working") })
	var settings map[string]any
	first, _, _ := strings.Cut(r.log.String(), "\n")
	if err := json.Unmarshal([]byte(first), &settings); err != nil || settings["batch_rows"] != 1000.0 || settings["entities"] != 1.0 || settings["traces"] != "http://127.0.0.1:1" || settings["messages_signed"] != true {
		t.Errorf("%v in %s", err, first)
	}
	if r.log.has("hush-hush") {
		t.Errorf("the log has a secret:\n%s", r.log)
	}
	for path, want := range map[string]string{"/metrics": "unstale_up 1", "/healthz": `{"ok":true}`, "/readyz": `{"ok":true}`, "/nope": "404"} {
		if body := r.get(t, path); !strings.Contains(body, want) {
			t.Errorf("%s: %.200s", path, body)
		}
	}
	r.signal(syscall.SIGINT)
	r.wantExit(exitDone)
}

// address is where a worker serves, as its log says.
var address = regexp.MustCompile(`127\.0\.0\.1:\d+`)

// get asks a worker over HTTP.
func (r *running) get(t *testing.T, path string) string {
	t.Helper()
	var line string
	for _, l := range strings.Split(r.log.String(), "\n") {
		if strings.Contains(l, "serving metrics") {
			line = address.FindString(l)
		}
	}
	reply, err := http.Get("http://" + line + path)
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Body.Close()
	body, err := io.ReadAll(reply.Body)
	if err != nil {
		t.Fatal(err)
	}
	http.DefaultClient.CloseIdleConnections()
	return fmt.Sprintf("%d %s", reply.StatusCode, body)
}

// A worker that starts before MySQL waits for it, alive and not ready.
func TestStartsBeforeMySQL(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	own := testenv.OwnMySQL(t)
	if err := own.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.env["MYSQL_DSN"] = own.DSN("shop")
	r := w.start("--listen", "127.0.0.1:0")
	r.until("the worker waits", func() bool { return r.log.has("outage: rows wait, nothing is lost; trying again") })
	if got := r.get(t, "/healthz"); !strings.HasPrefix(got, "200 ") {
		t.Errorf("/healthz: %s", got)
	}
	if got := r.get(t, "/readyz"); !strings.HasPrefix(got, "503 ") || !strings.Contains(got, "connect") {
		t.Errorf("/readyz: %s", got)
	}
	if err := own.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.wantExit(exitFail) // it is there now, and has no such database
	if !r.log.has("Unknown database 'shop'") {
		t.Errorf("log:\n%s", r.log)
	}
}

// The soft memory limit is above what is in use: a heap at its limit is collected without a pause.
func TestMemoryLimitFollowsTheHeap(t *testing.T) {
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(-1))
	used := make([]byte, 2*memoryLimit)
	runtime.GC()
	limitMemory(t.Context())
	runtime.KeepAlive(used)
	if limit := debug.SetMemoryLimit(-1); limit < int64(len(used))+garbageRoom {
		t.Errorf("%d bytes are in use, and the limit is %d", len(used), limit)
	}
	runtime.GC()
	limitMemory(t.Context())
	if limit := debug.SetMemoryLimit(-1); limit < memoryLimit || limit >= 2*memoryLimit {
		t.Errorf("the limit is %d after the memory was freed", limit)
	}
}
