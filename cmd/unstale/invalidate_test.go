package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

// An operator unlinks what a row, a key or a pattern names. Keys and patterns are data, and become
// rows like any other: settled, published, in the journal and in the audit.
func TestInvalidate(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	all := []string{"shop:thing:1", "shop:thing:2", "shop:old:*", "shop:old:a", "shop:list:1", "shop:list:2", "lists:1"}
	for _, key := range all {
		w.redis.Set(t.Context(), key, "old", time.Hour)
	}
	r := w.start()
	sub := w.redis.Subscribe(t.Context(), "cache:invalidate")
	defer sub.Close()
	if _, err := sub.Receive(t.Context()); err != nil {
		t.Fatal(err)
	}
	invalidate := func(args ...string) result {
		t.Helper()
		return call(t, w.env, append([]string{"invalidate"}, args...)...)
	}
	left := func(want ...string) {
		t.Helper()
		for _, key := range all {
			there := w.redis.Exists(t.Context(), key).Val() == 1
			wanted := strings.Contains(" "+strings.Join(want, " ")+" ", " "+key+" ")
			if there != wanted {
				t.Errorf("%s exists: %t", key, there)
			}
		}
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--entity", "thing", "--id", "1"}, "key      shop:thing:1\nwould unlink 1 key of the 1 that it names, and 0 keys that patterns match\n"},
		{[]string{"--key", "shop:old:*"}, "key      shop:old:*\nwould unlink 1 key of the 1 that it names, and 0 keys that patterns match\n"},
		{[]string{"--key", "nothing"}, "key      nothing\nwould unlink 0 keys of the 1 that it names, and 0 keys that patterns match\n"},
		{[]string{"--pattern", "shop:list:*"}, "pattern  shop:list:*\nwould unlink 0 keys of the 0 that it names, and 2 keys that patterns match\n"},
	} {
		got := invalidate(append(c.args, "--dry-run")...)
		if literal := c.args[1] == "shop:old:*"; got.code != exitDone || got.out != c.want || strings.Contains(got.err, "--pattern means all keys that match") != literal {
			t.Errorf("%q: %+v", c.args, got)
		}
	}
	left(all...)
	if n := w.count("cache_outbox_journal") + w.count("cache_outbox") + w.count("cache_outbox_audit"); n != 0 {
		t.Errorf("a dry run left %d records", n)
	}
	for _, c := range []struct {
		args    []string
		want    string
		message string
		left    []string
	}{
		{[]string{"--entity", "thing", "--id", "1"}, "invalidated thing 1: its keys are gone\n", `"shop:thing:1"`, all[1:]},
		{[]string{"--key", "shop:old:*"}, "invalidated unstale/key shop:old:*: its keys are gone\n", `"shop:old:*"`, []string{"shop:thing:2", "shop:old:a", "shop:list:1", "shop:list:2", "lists:1"}},
		{[]string{"--pattern", "shop:list:*"}, "invalidated unstale/pattern shop:list:*: its keys are gone\n", `"patterns":["shop:list:*"]`, []string{"shop:thing:2", "shop:old:a", "lists:1"}},
		{[]string{"--pattern", "shop:*", "--everything"}, "invalidated unstale/pattern shop:*: its keys are gone\n", `"patterns":["shop:*"]`, []string{"lists:1"}},
	} {
		if got := invalidate(append(c.args, "--wait", "1m")...); got.code != exitDone || got.out != c.want {
			t.Fatalf("%q: %+v\n%s", c.args, got, r.log)
		}
		left(c.left...)
		m, err := sub.ReceiveMessage(t.Context())
		for err == nil && strings.Contains(m.Payload, `"keys":[],"patterns":[]`) { // a heartbeat comes between
			m, err = sub.ReceiveMessage(t.Context())
		}
		if err != nil || !strings.Contains(m.Payload, c.message) {
			t.Errorf("%q: %+v, %v", c.args, m, err)
		}
	}
	// without --wait, a worker does it a little later
	got := invalidate("--key", "lists:1", "--json")
	var object struct {
		Entity  string
		Keys    []string
		DryRun  *bool `json:"dry_run"`
		Settled *bool
		Exist   *int64
	}
	if err := json.Unmarshal([]byte(got.out), &object); err != nil || object.Entity != "unstale/key" || fmt.Sprint(object.Keys) != "[lists:1]" || *object.DryRun || *object.Settled || object.Exist != nil {
		t.Errorf("%v: %+v", err, got)
	}
	r.until("the key is gone", func() bool { return w.keys() == 0 && w.count("cache_outbox") == 0 })

	h := call(t, w.env, "history", "--entity", "unstale/key", "--id", "shop:old:*")
	if h.code != exitDone || !strings.Contains(h.out, "unstale/key shop:old:*") {
		t.Errorf("history: %+v", h)
	}
	audit := call(t, w.env, "audit", "list", "--action", "invalidate")
	if strings.Count(audit.out, "\n") != 5 || !strings.Contains(strings.ReplaceAll(audit.out, " ", ""), `"params":{"everything":"true"}}`) {
		t.Errorf("audit: %+v", audit)
	}
	if s := call(t, w.env, "status"); strings.Contains(s.out, "unknown_entity") || w.count("cache_outbox_dead") != 0 {
		t.Errorf("status: %+v", s)
	}
}

// What the map refuses is not inserted, and rows that are inserted in another way become dead
// letters.
func TestInvalidateRefuses(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.setKeys(3)
	for want, args := range map[string][]string{
		"give one of --entity":                         {},
		"give one of --entity with --id, --key":        {"--key", "a", "--pattern", "b"},
		"--entity and --id go together":                {"--entity", "thing"},
		"--key is empty":                               {"--key", ""},
		"--pattern is empty":                           {"--pattern", ""},
		"--param is of a row of --entity":              {"--key", "a", "--param", "x=y"},
		"--everything is of a --pattern":               {"--key", "a", "--everything"},
		"--wait is 0":                                  {"--key", "a", "--wait", "0s"},
		"--wait -1s: must be a positive":               {"--key", "a", "--wait", "-1s"},
		"--wait and --dry-run exclude":                 {"--key", "a", "--wait", "1s", "--dry-run"},
		"have at most 255 characters, not 300":         {"--key", strings.Repeat("k", 300)},
		`--param "x": must be name=value`:              {"--entity", "thing", "--id", "1", "--param", "x"},
		`unknown argument "x" for "unstale invalidate`: {"x"},
	} {
		if r := call(t, w.env, append([]string{"invalidate"}, args...)...); r.code != exitUsage || !strings.Contains(r.err, want) {
			t.Errorf("%q: %+v", args, r)
		}
	}
	for want, args := range map[string][]string{
		`has no entity "thin"`:                                 {"--entity", "thin", "--id", "1"},
		"names that begin with unstale: are unstale's own":     {"--pattern", "unstale:set:*", "--everything"},
		"is not valid UTF-8":                                   {"--key", "a\xff"},
		"an unescaped [":                                       {"--pattern", "shop:list:[ab]*", "--everything"},
		"matches all keys of the map; write more literal text": {"--pattern", "shop:thing*"},
		"has 0 bytes of literal text":                          {"--pattern", "*"},
		"no/such/map.yaml":                                     {"--key", "a", "--map", "no/such/map.yaml"},
	} {
		for _, more := range [][]string{nil, {"--dry-run"}} {
			if r := call(t, w.env, append(append([]string{"invalidate"}, args...), more...)...); r.code != exitFail || !strings.Contains(r.err, want) {
				t.Errorf("%q: %+v", args, r)
			}
		}
	}
	if n := w.count("cache_outbox") + w.count("cache_outbox_audit"); n != 0 {
		t.Errorf("%d records", n)
	}
	if r := call(t, w.env, "invalidate", "--entity", "thing", "--id", "9", "--param", "typo=7"); r.code != exitDone || !strings.Contains(r.err, "ignored: parameter typo is not declared") {
		t.Errorf("%+v", r)
	}
	// no worker runs
	if r := call(t, w.env, "invalidate", "--key", "shop:thing:1", "--wait", "1ms"); r.code != exitStale || !strings.Contains(r.err, "the row still waits after 1ms; `unstale status` shows why") || !strings.HasPrefix(r.out, "inserted ") {
		t.Errorf("%+v", r)
	}
	_, err := w.db.Exec(`INSERT INTO cache_outbox (entity, entity_id, params) VALUES ('unstale/pattern', '*', NULL),
('unstale/pattern', 'shop:thing:[1', '{"everything": true}'), ('unstale/pattern', 'shop:thing:*', '{"everything": "yes"}'), ('unstale/keys', 'shop:thing:2', NULL)`)
	if err != nil {
		t.Fatal(err)
	}
	w.start("--once").wantExit(exitDone)
	if n := w.keys(); n != 2 {
		t.Errorf("%d keys left", n)
	}
	dead := call(t, w.env, "dead", "list")
	for want, n := range map[string]int{"  pattern_too_wide  ": 2, "  bad_parameter  ": 1, "  unknown_entity  ": 1, "set the parameter everything to true": 2} {
		if strings.Count(dead.out, want) != n {
			t.Errorf("wanted %d of %s:\n%s", n, want, dead.out)
		}
	}
	// one of them is corrected
	if r := call(t, w.env, "dead", "retry", "3", "--set-params", `{"everything": true}`); r.code != exitDone {
		t.Errorf("%+v", r)
	}
	w.start("--once").wantExit(exitDone)
	if n := w.keys(); n != 0 {
		t.Errorf("%d keys left", n)
	}
}
