package main

import (
	"encoding/json"
	"strings"
	"testing"
)

// replay unlinks again what the journal has, all of it or what is asked for; a dry run only counts.
func TestReplay(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const rows = 30
	w.fill(rows)
	w.start("--once", "--batch-rows", "7").wantExit(exitDone)
	w.setKeys(rows)
	replay := func(args ...string) result {
		t.Helper()
		r := call(t, w.env, append([]string{"replay"}, args...)...)
		if r.code != exitDone {
			t.Fatalf("replay %q: %+v", args, r)
		}
		return r
	}
	want := "would have unlinked 30 keys of 30 rows in 5 batches, would have requested 0 sweeps\n"
	if r := replay("--all", "--dry-run"); r.out != want || w.keys() != rows {
		t.Errorf("%+v, %d keys left", r, w.keys())
	}
	if r := replay("--since", "1h", "--entity", "thing", "--id", "9"); r.out != "unlinked 1 keys of 1 rows in 1 batches, requested 0 sweeps\n" || w.keys() != rows-1 {
		t.Errorf("%+v, %d keys left", r, w.keys())
	}
	if r := replay("--since", "1h", "--entity", "other"); !strings.HasPrefix(r.out, "unlinked 0 keys of 0 rows in 0 batches") {
		t.Errorf("%+v", r)
	}
	if r := replay("--since", "1us"); !strings.HasPrefix(r.out, "unlinked 0 keys") {
		t.Errorf("%+v", r)
	}
	var counted map[string]any
	r := replay("--all", "--json")
	if err := json.Unmarshal([]byte(r.out), &counted); err != nil || counted["keys"] != 30.0 || counted["messages"] != 1.0 || counted["dry_run"] != false {
		t.Errorf("%s: %v", r.out, err)
	}
	if n := w.keys(); n != 0 {
		t.Errorf("%d keys left", n)
	}
}

func TestReplayRefuses(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for want, args := range map[string][]string{
		"give either --since":          {},
		"give either --since, such":    {"--since", "1m", "--all"},
		"wanted a time that has":       {"--since", "-1m"},
		"--id needs --entity":          {"--all", "--id", "7"},
		"unknown argument \"product\"": {"product"},
	} {
		if r := call(t, w.env, append([]string{"replay"}, args...)...); r.code != exitUsage || !strings.Contains(r.err, want) {
			t.Errorf("%q: %+v", args, r)
		}
	}
	w.fill(3)
	w.start("--once").wantExit(exitDone)
	if err := w.server.Kill(); err != nil {
		t.Fatal(err)
	}
	if r := call(t, w.env, "replay", "--all"); r.code != exitFail || !strings.Contains(r.err, "replay is not complete, run it again") {
		t.Errorf("without Redis: %+v", r)
	}
}
