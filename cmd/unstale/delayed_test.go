package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/unstale/unstale/internal/store"
)

// Scheduled rows, repeats and failures are listed in the order of their due times, each with the
// reason for waiting.
func TestDelayedList(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	delayed := func(args ...string) result { return call(t, w.env, append([]string{"delayed", "list"}, args...)...) }
	if r := delayed(); r.code != exitDone || r.out != "no delayed rows\n" {
		t.Errorf("none: %+v", r)
	}
	for _, values := range []string{
		`('later', 'x1', '{"a": 1.10}', UTC_TIMESTAMP(6) + INTERVAL 90 MINUTE, 0, 0, '', NULL)`,
		`('again', 'x2', NULL, UTC_TIMESTAMP(6) + INTERVAL 30 MINUTE, 0, 1, '', NULL)`,
		`('refused', CONCAT('x3', CHAR(10)), NULL, UTC_TIMESTAMP(6) - INTERVAL 3 SECOND, 2, 0, 'redis_refused', 'NOPERM')`,
	} {
		if _, err := w.db.Exec("INSERT INTO cache_outbox_delayed (entity, entity_id, params, due_at, attempts, repeated, reason, error) VALUES " + values); err != nil {
			t.Fatal(err)
		}
	}
	r := delayed()
	lines := strings.Split(r.out, "\n")
	if r.code != exitDone || len(lines) != 4 {
		t.Fatalf("%+v", r)
	}
	for i, want := range []string{`redis_refused, 2 attempts  refused "x3\n": NOPERM`, "repeat  again x2", "scheduled  later x1"} {
		if !strings.HasSuffix(lines[i], want) || strings.Contains(lines[i], "due for 3") != (i == 0) {
			t.Errorf("line %d: %q, wanted ... %s", i, lines[i], want)
		}
	}
	if r := delayed("--limit", "1", "--due"); strings.Count(r.out, "\n") != 1 || !strings.Contains(r.out, "redis_refused") {
		t.Errorf("those that are due: %+v", r)
	}
	if r := delayed("--limit", "1"); !strings.HasSuffix(r.out, "\nand 2 more; see --limit\n") {
		t.Errorf("the first: %+v", r)
	}
	var list struct {
		Total   int
		Delayed []struct {
			store.DelayedRow
			DueSeconds float64 `json:"due_in_seconds"`
		}
	}
	r = delayed("--entity", "later", "--json")
	if err := json.Unmarshal([]byte(r.out), &list); err != nil || list.Total != 1 || len(list.Delayed) != 1 {
		t.Fatalf("%v: %+v", err, r)
	}
	if one := list.Delayed[0]; *one.Params != `{"a": 1.10}` || one.DueSeconds < 5300 || one.DueSeconds > 5400 || one.EntityID != "x1" || one.Repeated {
		t.Errorf("%+v", one)
	}
	for _, args := range [][]string{{"--limit", "0"}, {"--reason", ""}, {"--reason", "nope"}, {"x"}} {
		if r := delayed(args...); r.code != exitUsage {
			t.Errorf("%q: %+v", args, r)
		}
	}
}

// Failed rows become due, and scheduled rows and repeats only if asked for. The audit has each call.
func TestDelayedRetry(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	retry := func(want string, args ...string) {
		t.Helper()
		if r := call(t, w.env, append([]string{"delayed", "retry"}, args...)...); r.code != exitDone || r.out != want {
			t.Errorf("%q: %+v, wanted %q", args, r, want)
		}
	}
	retry("retried 0 delayed rows\n")
	if _, err := w.db.Exec(`INSERT INTO cache_outbox_delayed (entity, entity_id, due_at, attempts, repeated, reason, error, retry_us) VALUES
('a', '1', UTC_TIMESTAMP(6) + INTERVAL 1 HOUR, 1, 0, 'redis_refused', 'NOPERM', 1000000), ('b', '1', UTC_TIMESTAMP(6) + INTERVAL 1 HOUR, 1, 0, 'lookup_failed', 'x', 1000000),
('a', '2', UTC_TIMESTAMP(6) + INTERVAL 1 HOUR, 0, 0, '', NULL, NULL), ('a', '3', UTC_TIMESTAMP(6) + INTERVAL 1 HOUR, 0, 1, '', NULL, NULL)`); err != nil {
		t.Fatal(err)
	}
	if r := call(t, w.env, "status"); !strings.Contains(r.out, "the database's clock was set back, so their time is far off; ") || !strings.Contains(r.out, "unstale delayed retry --reason lookup_failed") {
		t.Errorf("status: %+v", r)
	}
	retry("would retry 2 delayed rows\n", "--dry-run")
	retry("{\n  \"dry_run\": false,\n  \"retried\": 1\n}\n", "--reason", "redis_refused", "--json")
	retry("retried 1 delayed row\n", "--entity", "b")
	retry("retried 0 delayed rows\n")
	retry("would retry 2 delayed rows\n", "--scheduled", "--dry-run")
	retry("retried 2 delayed rows\n", "--scheduled", "--entity", "a")
	if r := call(t, w.env, "audit", "list", "--action", "delayed retry"); strings.Count(r.out, "delayed retry") != 3 {
		t.Errorf("audit: %+v", r)
	}
	if r := call(t, w.env, "delayed", "retry", "--reason", "nope"); r.code != exitUsage {
		t.Errorf("%+v", r)
	}
}
