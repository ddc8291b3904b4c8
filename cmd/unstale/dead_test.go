package main

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/unstale/unstale/internal/store"
)

// deadLetterThings makes dead letters of rows that no map knows.
func (w *world) deadLetterThings(n int) {
	w.t.Helper()
	for i := range n {
		if _, err := w.db.Exec("INSERT INTO cache_outbox (entity, entity_id, params, trace) VALUES ('nonsense', ?, ?, 't')",
			fmt.Sprint("x", i+1), `{"a": 1.10}`); err != nil {
			w.t.Fatal(err)
		}
	}
	w.start("--once").wantExit(exitDone)
}

// ages makes dead letters old enough to be discarded.
func (w *world) ages() {
	w.t.Helper()
	if _, err := w.db.Exec("UPDATE cache_outbox_dead SET died_at = died_at - INTERVAL 1 HOUR"); err != nil {
		w.t.Fatal(err)
	}
}

// Dead letters are listed, shown, retried with a map that knows them, and discarded.
func TestDead(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.deadLetterThings(3)
	dead := func(args ...string) result { return call(t, w.env, append([]string{"dead"}, args...)...) }
	r := dead("list", "--limit", "2")
	if lines := strings.Split(r.out, "\n"); r.code != exitDone || len(lines) != 4 || lines[2] != "and 1 more; see --limit" ||
		!strings.HasSuffix(lines[0], `unknown_entity    nonsense x3: unknown_entity: the map has no entity "nonsense"`) {
		t.Errorf("list: %+v", r)
	}
	var list struct {
		Total int
		Dead  []store.DeadLetter
	}
	if err := json.Unmarshal([]byte(dead("list", "--json").out), &list); err != nil || list.Total != 3 || len(list.Dead) != 3 || *list.Dead[0].Params != `{"a": 1.10}` {
		t.Fatalf("%v: %+v", err, list)
	}
	first := fmt.Sprint(list.Dead[2].ID)
	if r := dead("show", first); r.code != exitDone || !strings.Contains(r.out, "entity id    x1\nparams       {\"a\": 1.10}\ntrace        t\nreason       unknown_entity\n") {
		t.Errorf("show: %+v", r)
	}
	if r := dead("show", "999"); r.code != exitFail || !strings.Contains(r.err, "there is no dead letter 999") {
		t.Errorf("show of nothing: %+v", r)
	}
	for want, args := range map[string][]string{
		"would have retried 3 dead letters\n":  {"retry", "--all", "--dry-run"},
		"would have retried 0 dead letters\n":  {"retry", "--older-than", "1h", "--dry-run"},
		"would have discarded 1 dead letter\n": {"discard", first, "--dry-run"},
	} {
		if r := dead(args...); r.code != exitDone || r.out != want {
			t.Errorf("%q: %+v", args, r)
		}
	}
	if r := dead("discard", first, "999", "--dry-run"); r.code != exitFail || !strings.Contains(r.err, "there is no such dead letter: [999]") {
		t.Errorf("dry run with an unknown id: %+v", r)
	}
	if n := w.count("cache_outbox_dead"); n != 3 {
		t.Fatalf("a dry run left %d", n)
	}
	if r := dead("discard", first); r.code != exitFail || r.out != "discarded 0 dead letters\n" || !strings.Contains(r.err, "dead letters ["+first+"] died less than 5m0s ago, ") {
		t.Errorf("discard of a young one: %+v", r)
	}
	w.ages()
	if r := dead("discard", first, "999"); r.code != exitFail || r.out != "discarded 1 dead letter\n" || !strings.Contains(r.err, "[999]") {
		t.Errorf("discard: %+v", r)
	}
	if r := dead("retry", "--reason", "unknown_entity", "--json"); r.code != exitDone || !strings.Contains(r.out, `"retried": 2`) {
		t.Errorf("retry: %+v", r)
	}
	if back, left := w.count("cache_outbox_delayed WHERE trace = 't'"), w.count("cache_outbox_dead"); back != 2 || left != 0 {
		t.Errorf("%d back, %d left", back, left)
	}
	if r := dead("list"); r.out != "no dead letters\n" {
		t.Errorf("%+v", r)
	}
}

// Sentence 4: whatever the ID of a retried row, history lists it under the first one: the keys that
// it finally unlinked, and its repeat.
func TestHistoryOfARetry(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.fill(4)
	w.start("--once").wantExit(exitDone) // so that the first id is not 1, as others are
	w.deadLetterThings(1)
	for range 2 { // retried and dead-lettered again
		if r := call(t, w.env, "dead", "retry", "--all"); r.code != exitDone || r.out != "retried 1 dead letter\n" {
			t.Fatalf("%+v", r)
		}
		w.start("--once").wantExit(exitDone)
		if n := w.count("cache_outbox_dead WHERE first_id = 5"); n != 1 {
			t.Fatalf("%d dead letters began as row 5", n)
		}
	}
	withNonsense := "version: 1\nentities: {nonsense: {keys: [\"shop:nonsense:{id}\"], repeat: [1h]}}\n"
	if err := os.WriteFile(w.env["UNSTALE_MAP"], []byte(withNonsense), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := call(t, w.env, "dead", "retry", "--all"); r.code != exitDone {
		t.Fatalf("%+v", r)
	}
	w.start("--once").wantExit(exitDone)
	if _, err := w.db.Exec("UPDATE cache_outbox_delayed SET due_at = UTC_TIMESTAMP(6)"); err != nil {
		t.Fatal(err)
	}
	w.start("--once").wantExit(exitDone)
	var history struct{ Found []settlement }
	r := call(t, w.env, "history", "--entity", "nonsense", "--id", "x1", "--json")
	if err := json.Unmarshal([]byte(r.out), &history); err != nil || len(history.Found) != 2 {
		t.Fatalf("%v: %+v", err, r)
	}
	for _, f := range history.Found {
		if f.Row != 5 || f.Trace != "t" || !slices.Equal(f.Keys, []string{"shop:nonsense:x1"}) {
			t.Errorf("%+v", f)
		}
	}
}

// A bulk command requires a selection.
func TestDeadRefuses(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		"which ones? give ids":         {"retry"},
		"which ones? give ids, a":      {"discard", "--dry-run"},
		"--all and a choice":           {"discard", "--all", "--entity", "x"},
		"--all and a choice; give one": {"retry", "--all", "7"},
		"there is no such reason":      {"retry", "--reason", "boredom"},
		"is not an id":                 {"discard", "x"},
		"want a time that has passed":  {"discard", "--older-than", "-1h"},
		"--limit 0":                    {"list", "--limit", "0"},
		"--entity is empty":            {"discard", "--entity", ""}, // an unset variable
		"--reason is empty":            {"retry", "--reason", "", "--dry-run"},
		"--map-version is empty":       {"list", "--map-version", ""},
		"--newer-than is 0":            {"discard", "--newer-than", "0s"},
		"--older-than is 0":            {"discard", "--older-than", "0"},
	} {
		r := call(t, map[string]string{"MYSQL_DSN": "u@tcp(127.0.0.1:1)/d"}, append([]string{"dead"}, args...)...)
		if r.code != exitUsage || !strings.Contains(r.err, want) {
			t.Errorf("%q: %+v", args, r)
		}
	}
}
