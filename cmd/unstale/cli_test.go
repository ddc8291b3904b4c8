package main

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/migrations"
)

// Flag over environment over default, and one name for both.
func TestFlagBeatsVariable(t *testing.T) {
	t.Parallel()
	bad := map[string]string{"MYSQL_DSN": "user:secret@tcp(env:1)/"}
	if r := call(t, bad, "status"); r.code != exitUsage || !strings.Contains(r.err, "names no database") || strings.Contains(r.err, "secret") {
		t.Errorf("variable: %+v", r)
	}
	if r := call(t, bad, "status", "--mysql-dsn", "garbage"); r.code != exitUsage || !strings.Contains(r.err, "mysql dsn: ") || strings.Contains(r.err, "names no database") {
		t.Errorf("flag: %+v", r)
	}
	r := call(t, map[string]string{"UNSTALE_BATCH_ROWS": "many"}, "run")
	if r.code != exitUsage || !strings.Contains(r.err, `variable UNSTALE_BATCH_ROWS "many": must be a number`) {
		t.Errorf("bad variable: %+v", r)
	}
	grpc := map[string]string{"MYSQL_DSN": "u@/d", "REDIS_URL": "redis://x", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://x:4317", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}
	if r := call(t, grpc, "run"); r.code != exitUsage || !strings.Contains(r.err, `variable OTEL_EXPORTER_OTLP_PROTOCOL "grpc": must be http/protobuf or http/json; set `) {
		t.Errorf("a protocol that is not there: %+v", r)
	}
	for flag, name := range map[string]string{"mysql-dsn": "MYSQL_DSN", "redis-db-cache": "REDIS_DB_CACHE", "redis-tls": "REDIS_TLS", "map": "UNSTALE_MAP", "redis-timeout": "UNSTALE_REDIS_TIMEOUT"} {
		if envName(flag) != name {
			t.Errorf("%s: %s", flag, envName(flag))
		}
	}
}

// Wrong usage is 2, a refusal is 1, and every command's help shows an example.
func TestUsage(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"nope"}, {"--nope"}, {"help", "nope"}, {"help", "dead", "nope"}, {"completion", "nope"}, {"completion", "bash", "nope"}, {"run", "x"}, {"run", "--batch-rows", "0"}, {"run"}, {"migrate", "sideways"}, {"enqueue", "product"}, {"trace"}, {"trace", "x"}, {"trace", "0"},
		{"map", "check"}, {"map", "nope"}, {"run", "--redis-url", "http://x", "--mysql-dsn", "u@/d"}, {"run", "--log-format", "xml"},
		{"run", "--redis-url", "redis://x", "--redis-db-cache", "1", "--redis-db-state", "1"},
		{"enqueue", "product", "1", "--at", "tomorrow", "--mysql-dsn", "u@/d"}, {"run", "--idle-interval", "5"}, {"doctor", "--check", "nothing"}, {"doctor", "--definer", "@"}, {"doctor", "--audit-redis-url", "http://x"}, {"doctor", "--redis-url-state", "http://x"},
	} {
		if r := call(t, nil, args...); r.code != exitUsage || !strings.Contains(r.err, "--help") {
			t.Errorf("%q: %+v", args, r)
		}
	}
	for _, args := range [][]string{{}, {"run"}, {"migrate", "up"}, {"migrate", "down"}, {"migrate", "status"}, {"map", "check"}, {"map", "explain"}, {"map", "schema"}, {"capture", "sql"}, {"capture", "apply"}, {"capture", "diff"}, {"capture", "drop"}, {"capture", "status"}, {"enqueue"}, {"invalidate"}, {"replay"}, {"history"}, {"trace"}, {"delayed", "list"}, {"audit", "list"}, {"dead", "list"}, {"dead", "show"}, {"dead", "retry"}, {"dead", "discard"}, {"pause"}, {"resume"}, {"source", "replace"}, {"source", "restored"}, {"status"}, {"doctor"}, {"demo"}} {
		r := call(t, nil, append(args, "--help")...)
		if r.code != exitDone || !strings.Contains(r.out, "Example") {
			t.Errorf("%q: %+v", args, r)
		}
	}
	if r := call(t, nil, "version"); r.code != exitDone || !strings.HasPrefix(r.out, "unstale ") {
		t.Errorf("version: %+v", r)
	}
	if r := call(t, nil, "version", "--json"); r.code != exitDone || !json.Valid([]byte(r.out)) || !strings.Contains(r.out, `"version": "`) {
		t.Errorf("version: %+v", r)
	}
	for want, args := range map[string][]string{`did you mean "unstale status"?`: {"statsu"}, `did you mean "unstale dead retry"?`: {"dead", "retyr"}} {
		if r := call(t, nil, args...); !strings.Contains(r.err, want) {
			t.Errorf("%q: %+v", args, r)
		}
	}
}

// migrate, enqueue and status on a real server.
func TestMigrateEnqueueStatus(t *testing.T) {
	t.Parallel()
	env := testenv.MySQL(t)
	vars := map[string]string{"MYSQL_DSN": env.DSN}
	must := func(args ...string) result {
		t.Helper()
		r := call(t, vars, args...)
		if r.code != exitDone {
			t.Fatalf("%q: %+v", args, r)
		}
		return r
	}
	if r := call(t, vars, "status"); r.code != exitFail || !strings.Contains(r.err, "unstale migrate up") {
		t.Errorf("status without tables: %+v", r)
	}
	if r := call(t, vars, "enqueue", "product", "1"); r.code != exitFail || !strings.Contains(r.err, "unstale migrate up") {
		t.Errorf("enqueue without tables: %+v", r)
	}
	p, err := migrations.Provider(env.DB)
	if err != nil {
		t.Fatal(err)
	}
	files := len(p.ListSources())
	if r := must("migrate", "up"); strings.Count(r.out, "applied ") != files {
		t.Errorf("%+v", r)
	}
	if r := must("migrate", "up"); r.out != "nothing to apply: the schema is up to date\n" {
		t.Errorf("%+v", r)
	}
	must("enqueue", "product", "42", "--param", "category_id=7", "--param", "category_id=9,1", "--param", "x=a=b")
	must("enqueue", "--at", "+10m", "--trace", "t1", "coupon", "--", "-x")
	must("enqueue", "coupon", "y", "--dry-run")
	if r := must("enqueue", "coupon", "y", "--param", "a=1", "--dry-run", "--json"); !json.Valid([]byte(r.out)) || !strings.Contains(r.out, `"entity_id": "y"`) || !strings.Contains(r.out, `"a": "1"`) {
		t.Errorf("%+v", r)
	}
	if r := call(t, vars, "enqueue", "product", ""); r.code != exitFail || !strings.Contains(r.err, "id: is empty") {
		t.Errorf("empty id: %+v", r)
	}
	var params string
	if err := env.DB.QueryRow("SELECT params FROM cache_outbox").Scan(&params); err != nil || params != `{"category_id":["7","9,1"],"x":"a=b"}` {
		t.Errorf("params %s, %v", params, err)
	}
	var due time.Time
	if err := env.DB.QueryRow("SELECT due_at FROM cache_outbox_delayed WHERE entity_id = '-x' AND trace = 't1'").Scan(&due); err != nil || time.Until(due) < 9*time.Minute || time.Until(due) > 11*time.Minute {
		t.Errorf("due %s, %v", due, err)
	}
	checkStatus(t, env.DB, vars)
	if r := must("migrate", "status"); strings.Count(r.out, "pending") != 0 || strings.Count(r.out, "applied") != files {
		t.Errorf("%+v", r)
	}
	for range files - 1 { // down to the baseline
		must("migrate", "down")
	}
	if r := call(t, vars, "migrate", "down"); r.code != exitFail || !strings.Contains(r.err, "cache_outbox has rows") || !strings.Contains(r.err, "\ntable cache_outbox_delayed has rows") {
		t.Errorf("down over rows: %+v", r)
	}
	must("migrate", "down", "--force")
	if r := must("migrate", "status"); strings.Count(r.out, "pending") != files || strings.Count(r.out, "applied") != 0 {
		t.Errorf("%+v", r)
	}
	if r := must("migrate", "down"); r.out != "nothing to take back: no migration is applied\n" {
		t.Errorf("%+v", r)
	}
}

func checkStatus(t *testing.T, db *sql.DB, vars map[string]string) {
	t.Helper()
	must := func(args ...string) result {
		t.Helper()
		r := call(t, vars, args...)
		if r.code != exitStale { // no worker runs
			t.Fatalf("%q: %+v", args, r)
		}
		return r
	}
	var object map[string]any
	if err := json.Unmarshal([]byte(must("status", "--json").out), &object); err != nil {
		t.Fatal(err)
	}
	if object["waiting"] != 1.0 || object["delayed"] != 1.0 || object["dead"] != 0.0 || object["sweeps"] != 0.0 || object["last_batch"] != nil {
		t.Errorf("status %v", object)
	}
	// Beyond 10,000 the count ends.
	rows := strings.Repeat(",('product','1')", 999)
	for range 10 {
		if _, err := db.Exec("INSERT INTO cache_outbox (entity, entity_id) VALUES ('product','1')" + rows); err != nil {
			t.Fatal(err)
		}
	}
	if r := must("status"); !strings.Contains(r.out, "waiting      >10000\n") {
		t.Errorf("%s", r.out)
	}
	if r, source := must("status"), ""; db.QueryRow("SELECT id FROM cache_outbox_source").Scan(&source) != nil || !strings.Contains(r.out, "\nsource       "+source+"\n") {
		t.Errorf("%s", r.out)
	}
	if err := json.Unmarshal([]byte(must("status", "--json").out), &object); err != nil || object["waiting"] != ">10000" {
		t.Errorf("%v: status %v", err, object["waiting"])
	}
}

func TestParseAt(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for at, want := range map[string]string{
		"": "0001-01-01T00:00:00Z", "+10m": "2026-01-02T03:14:05Z", "+0s": "2026-01-02T03:04:05Z", "2027-01-01T00:00:00+03:00": "2026-12-31T21:00:00Z",
	} {
		if got, err := parseAt(at, now); err != nil || got.UTC().Format(time.RFC3339) != want {
			t.Errorf("%q: %s, %v", at, got, err)
		}
	}
	for _, at := range []string{"10m", "+", "+-1s", "now", "2027-01-01"} {
		if got, err := parseAt(at, now); err == nil {
			t.Errorf("%q: %s", at, got)
		}
	}
}

func TestPrintable(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]string{"a:عربي": "a:عربي", "a\nb": `"a\nb"`, "\x1b[31m": `"\x1b[31m"`, "\u009b": `"\u009b"`} {
		if got := printable(s); got != want {
			t.Errorf("%q: %s", s, got)
		}
	}
	if fmt.Sprintf("%v %v", bounded(10_000), bounded(10_001)) != "10000 >10000" {
		t.Error(bounded(10_000), bounded(10_001))
	}
}

// status shows how far sweeps are, patterns and index sets each for themselves.
func TestStatusOfSweeps(t *testing.T) {
	t.Parallel()
	env := testenv.MySQL(t)
	if _, err := migrations.Up(t.Context(), env.DB); err != nil {
		t.Fatal(err)
	}
	_, err := env.DB.Exec(`INSERT INTO cache_outbox_sweeper (name, worker, began_at, patterns, scanned, total, unlinked) VALUES
('pass', 'web-1', UTC_TIMESTAMP(6) - INTERVAL 10 SECOND, 7, 250, 1000, 3), ('sets', 'web-1', UTC_TIMESTAMP(6) - INTERVAL 10 SECOND, 0, 500, 600, 1500)`)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := env.DB.Exec("INSERT INTO cache_outbox_sweeper (name, worker, error) VALUES ('failed', 'web-1', 'no right')"); err != nil {
		t.Fatal(err)
	}
	vars := map[string]string{"MYSQL_DSN": env.DSN}
	r := call(t, vars, "status")
	for _, want := range []string{
		"sweeps       0  all fail in worker web-1: no right\n",
		"sweeping     250 of 1000 names scanned for 7 patterns in ", ", 3 unlinked, about ",
		"sweeping     500 of 600 index sets taken in ", ", 1500 members unlinked, about ", " left, by worker web-1\n",
	} {
		if !strings.Contains(r.out, want) {
			t.Errorf("%q is not in\n%s", want, r.out)
		}
	}
	var status struct {
		Scan *sweepScan `json:"sweep_scan"`
		Sets *sweepSets `json:"sweep_sets"`
	}
	r = call(t, vars, "status", "--json")
	if err := json.Unmarshal([]byte(r.out), &status); err != nil || status.Scan == nil || status.Sets == nil || status.Sets.LeftSeconds == nil {
		t.Fatalf("%v: %+v", err, r)
	}
	if s := *status.Sets; s.Worker != "web-1" || s.Taken != 500 || s.Total != 600 || s.Unlinked != 1500 || s.ForSeconds < 10 {
		t.Errorf("%+v", s)
	}
}
