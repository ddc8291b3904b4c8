package main

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
)

// A fullDisk takes nothing.
type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errors.New("no space left") }

// A command that cannot print its output fails, and reports that its work is done.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.deadLetterThings(2)
	for _, args := range [][]string{
		{"version"}, {"status"}, {"status", "--json"}, {"audit", "list"}, {"audit", "list", "--json"}, {"dead", "list"}, {"history", "--row", "1"},
		{"dead", "retry", "1"}, {"dead", "retry", "2", "--json"}, {"pause", "--until-resumed"}, {"resume"},
	} {
		var said bytes.Buffer
		code := execute(t.Context(), process{Args: args, Out: fullDisk{}, Err: &said, Env: func(name string) (string, bool) { v, ok := w.env[name]; return v, ok }, Vars: func() []string { return nil }})
		if code != exitFail || !strings.Contains(said.String(), "no space left") || args[0] == "dead" && args[1] == "retry" && !strings.Contains(said.String(), "the command has done its work") {
			t.Errorf("%q: %d, %s", args, code, said.String())
		}
	}
	if dead, delayed := w.count("cache_outbox_dead"), w.count("cache_outbox_delayed"); dead != 0 || delayed != 2 {
		t.Errorf("%d dead letters, %d delayed rows", dead, delayed)
	}
}

// A row of many names fits a screen, and a key with odd bytes can be asked for as it is shown.
func TestHistoryOfManyNames(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	p := process{Out: &out}
	printList(p, "pattern", strings.Split(strings.Repeat("x,", 4999)+"x", ","))
	if !strings.HasSuffix(out.String(), "\n  pattern  and 4990 more; see --json\n") || strings.Count(out.String(), "\n") != shownNames+1 {
		t.Error(out.String())
	}
	for quoted, want := range map[string]string{printable("nul\x00x"): "nul\x00x", printable("\xff\"a"): "\xff\"a", `"plain"`: "plain", `'a'`: "", `"a`: "", `""`: "", "`a`": ""} {
		h := historyCommand{quoted: quoted}
		h.query.Limit = 1
		if err := h.check(); (err == nil) != (want != "") || h.query.Key != want {
			t.Errorf("%s: %q, %v", quoted, h.query.Key, err)
		}
	}
	one, s := 1, settlement{}
	s.WrittenAt, s.PublishedAt, s.Receivers, s.Messages = &s.SettledAt, &s.SettledAt, &one, 2
	for _, c := range []struct {
		by      []evictor
		unknown string
		least   bool
		want    string
	}{
		{nil, "no process reports", false, "(which of them evicted it is unknown: no process reports)"},
		{[]evictor{{Process: "a", Messages: 2}, {Process: "b\n", Messages: 1}}, "", false, `(reported as evicted by a and "b\n", 1 of 2 messages; whether others evicted it is unknown)`},
		{[]evictor{{Process: "a", Messages: 2}}, "", true, "(reported as evicted by at least a; whether others evicted it is unknown)"},
		{slices.Repeat([]evictor{{Process: "a", Messages: 2}}, shownNames+3), "", false, "a and 3 more; see --json; whether"},
	} {
		s.EvictedBy, s.EvictedUnknown, s.Least = c.by, c.unknown, c.least
		if j := timeline(&s); !strings.Contains(j, " to 1 receiver (") || !strings.Contains(j, c.want) {
			t.Errorf("%s, wanted %s", j, c.want)
		}
	}
}
