package main

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
)

// One dead letter is corrected and retried: the map checks it first, before and after are shown,
// and the parameters arrive byte for byte.
func TestDeadCorrect(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	text := "version: 1\nentities:\n  thing: {params: [n], keys: [\"shop:thing:{id}:{n}\"]}\n  plain: {keys: [\"shop:plain:{id}\"]}\n"
	if err := os.WriteFile(w.env["UNSTALE_MAP"], []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, row := range []string{`('thing', '1', '{"m": 1}')`, `('nonsense', '2', NULL)`, `('thing', '3', NULL)`} {
		if _, err := w.db.Exec("INSERT INTO cache_outbox (entity, entity_id, params, trace) VALUES " + strings.Replace(row, ")", ", 't')", 1)); err != nil {
			t.Fatal(err)
		}
	}
	w.start("--once").wantExit(exitDone)
	retry := func(id int, args ...string) result {
		return call(t, w.env, append([]string{"dead", "retry", fmt.Sprint(id)}, args...)...)
	}
	const exact = `{"n": [18446744073709551616, 1.10], "m":{"<&>": [[1]]}}`
	r := retry(1, "--set-params", exact, "--dry-run")
	for _, part := range []string{
		"before   thing 1 {\"m\": 1}\nrefused  missing_parameter", "after    thing 1 " + exact + "\nkey      shop:thing:1:1.10\nkey      shop:thing:1:18446744073709551616\n",
		"ignored  parameter m is not declared", "would have retried 1 dead letter\n",
	} {
		if r.code != exitDone || !strings.Contains(r.out, part) {
			t.Errorf("%q: %+v", part, r)
		}
	}
	for want, args := range map[string][]string{
		"missing_parameter":              {"--set-params", `{"N": 1}`},
		"refuses the row as corrected: ": {"--set-entity", "nonsense"},
		"something follows the JSON":     {"--set-params", `{"n": 1}}`},
		"entity: ":                       {"--set-entity", strings.Repeat("x", 200)},
		"are not valid UTF-8":            {"--set-params", "{\"n\": \"\xff\"}"},
	} {
		if r := retry(1, args...); r.code != exitFail || !strings.Contains(r.err, want) || !strings.Contains(r.err, "nothing was done: map ") || !strings.Contains(r.err, "unstale map explain") {
			t.Errorf("%q: %+v", want, r)
		}
	}
	if n := w.count("cache_outbox_dead"); n != 3 || w.count("cache_outbox_audit") != 0 {
		t.Fatalf("%d dead letters", n)
	}
	if r := retry(1, "--set-params", exact); r.code != exitDone || !strings.HasSuffix(r.out, "\nretried 1 dead letter\n") || !strings.Contains(r.err, "whether the workers use this map is unknown: none runs") {
		t.Errorf("%+v", r)
	}
	var said struct {
		Retried       int
		Before, After judgement
	}
	r = retry(2, "--set-entity", "plain", "--json")
	if err := json.Unmarshal([]byte(r.out), &said); err != nil || said.Retried != 1 || said.Before.Refused == "" || said.After.Expands == nil || said.After.Expands.Keys[0] != "shop:plain:2" {
		t.Errorf("%v: %+v", err, r)
	}
	var params sql.NullString
	for id, want := range map[string]sql.NullString{"1": {String: exact, Valid: true}, "2": {}} {
		if err := w.db.QueryRow("SELECT params FROM cache_outbox_delayed WHERE entity_id = ? AND trace = 't' AND first_id = ?", id, id).Scan(&params); err != nil || params != want {
			t.Errorf("row %s has %v, %v", id, params, err)
		}
	}
	var arguments string
	if err := w.db.QueryRow("SELECT arguments FROM cache_outbox_audit WHERE action = 'dead retry --set' AND row_count = 1 ORDER BY id LIMIT 1").Scan(&arguments); err != nil {
		t.Fatal(err)
	}
	var kept struct{ Params, Params_before string }
	if err := json.Unmarshal([]byte(arguments), &kept); err != nil || kept.Params != exact || kept.Params_before != `{"m": 1}` {
		t.Errorf("%v: %s", err, arguments)
	}
	w.start("--once").wantExit(exitDone)
	keys := []string{}
	for _, e := range w.entries() {
		keys = append(keys, e.Keys...)
	}
	if got := strings.Join(keys, " "); !strings.Contains(got, "shop:thing:1:18446744073709551616") || !strings.Contains(got, "shop:plain:2") || w.count("cache_outbox_dead") != 1 {
		t.Errorf("unlinked %s", got)
	}

	// A map that no worker uses proves nothing.
	if _, err := w.db.Exec("INSERT INTO cache_outbox_workers (id, name, state, since, map_version, channel, format) VALUES ('x', 'web-1', 'working', UTC_TIMESTAMP(6), 'another', 'c', 'event')"); err != nil {
		t.Fatal(err)
	}
	if r := retry(3, "--set-entity", "plain"); r.code != exitFail || !strings.Contains(r.err, "the workers use [another]; give the file that they read with --map") {
		t.Errorf("%+v", r)
	}
	w.env["UNSTALE_MAP"] = "/no/such/map.yaml"
	if r := retry(3, "--set-entity", "plain"); r.code != exitFail || !strings.Contains(r.err, "/no/such/map.yaml") {
		t.Errorf("%+v", r)
	}
	for _, args := range [][]string{{"4", "--set-entity", "x"}, {"--set-entity", ""}, {"--set-params", ""}, {"--set-entity", "x", "--reason", "unknown_entity"}, {"--all", "--set-entity", "x"}} {
		if r := retry(3, args...); r.code != exitUsage {
			t.Errorf("%q: %+v", args, r)
		}
	}
	if r := retry(999, "--set-entity", "plain"); r.code != exitFail {
		t.Errorf("%+v", r)
	}
}
