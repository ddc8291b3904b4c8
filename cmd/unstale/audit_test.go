package main

import (
	"encoding/json"
	"strings"
	"testing"
)

// The actions of operators are listed, newest first, with their arguments. Commands that did
// nothing are not listed.
func TestAudit(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	audit := func(args ...string) result { return call(t, w.env, append([]string{"audit", "list"}, args...)...) }
	for _, args := range [][]string{{"resume"}, {"dead", "retry", "--all"}, {"dead", "discard", "--all", "--dry-run"}, {"replay", "--all", "--dry-run"}} {
		if r := call(t, w.env, args...); r.code != exitDone {
			t.Errorf("%q: %+v", args, r)
		}
	}
	if r := audit(); r.code != exitDone || r.out != "nothing was done\n" {
		t.Errorf("%+v", r)
	}
	w.deadLetterThings(3)
	w.ages()
	for _, args := range [][]string{{"pause", "--reason", "a\nb", "--for", "1h"}, {"resume"}, {"dead", "discard", "2"}, {"dead", "retry", "--reason", "unknown_entity"}, {"replay", "--since", "1h", "--entity", "thing"}} {
		if r := call(t, w.env, args...); r.code != exitDone {
			t.Errorf("%q: %+v", args, r)
		}
	}
	var list struct {
		Total int
		Audit []auditRecord
	}
	r := audit("--json")
	if err := json.Unmarshal([]byte(r.out), &list); err != nil || list.Total != 6 {
		t.Fatalf("%v: %+v", err, r)
	}
	for i, want := range []struct {
		action string
		rows   uint64
		parts  []string
	}{
		{"replay over", 0, []string{`"keys":0`}},
		{"replay", 0, []string{`"since_seconds":3600`, `"entity":"thing"`}},
		{"dead retry", 2, []string{`"reason":"unknown_entity"`, `"ids":[1,3]`}},
		{"dead discard", 1, []string{`"ids":[2]`}},
		{"resume", 1, []string{`"paused_by":"` + operator(), `"reason":"a\nb"`}},
		{"pause", 1, []string{`"for_seconds":3600`, `"reason":"a\nb"`}},
	} {
		got := list.Audit[i]
		if got.Action != want.action || got.Rows != want.rows || got.ClaimedBy != operator() || !strings.Contains(got.Account, "@") || got.At.IsZero() {
			t.Errorf("%d: %+v", i, got)
		}
		if begins := strings.Contains(call(t, w.env, "audit", "list", "--action", got.Action).out, "  begins  "); begins != (got.Action == "replay") {
			t.Errorf("%s: begins %t", got.Action, begins)
		}
		text := strings.Join(strings.Fields(string(got.Arguments)), "")
		for _, part := range want.parts {
			if !strings.Contains(text, part) {
				t.Errorf("%s: %q is not in %s", got.Action, part, got.Arguments)
			}
		}
	}
	if r := audit("--action", "dead retry", "--since", "1h"); strings.Count(r.out, "\n") != 1 || !strings.Contains(r.out, "  dead retry  2 rows  {") {
		t.Errorf("%+v", r)
	}
	if _, err := w.db.Exec("UPDATE cache_outbox_audit SET action = 'dead retry --set' WHERE action = 'dead retry'"); err != nil {
		t.Fatal(err)
	}
	if r := audit("--action", "dead retry"); strings.Count(r.out, "\n") != 1 || !strings.Contains(r.out, "  dead retry --set  2 rows  {") {
		t.Errorf("%+v", r)
	}
	if r := call(t, w.env, "status", "--json"); strings.Contains(r.out, `"replay_broken"`) {
		t.Errorf("%+v", r)
	}
	// as if it had been killed
	if _, err := w.db.Exec("DELETE FROM cache_outbox_audit WHERE action = 'replay over'"); err != nil {
		t.Fatal(err)
	}
	if r := call(t, w.env, "status"); !strings.Contains(r.out, "the replay of "+operator()+" did not come to its end") {
		t.Errorf("%+v", r)
	}
	if _, err := w.db.Exec("INSERT INTO cache_outbox_audit (claimed_by, action, arguments, row_count) VALUES ('', 'replay over', '{}', 0)"); err != nil {
		t.Fatal(err)
	}
	if r := audit("--limit", "2"); !strings.HasSuffix(r.out, "\nand 4 more; see --limit\n") {
		t.Errorf("%+v", r)
	}
	for _, args := range [][]string{{"--limit", "0"}, {"--since", "-1h"}, {"--action", ""}, {"--action", "bogus"}, {"x"}} {
		if r := audit(args...); r.code != exitUsage {
			t.Errorf("%q: %+v", args, r)
		}
	}
}
