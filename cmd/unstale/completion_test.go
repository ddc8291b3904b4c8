package main

import (
	"strings"
	"testing"
)

// Shells complete commands, flags, entities of the map, reasons and other closed sets.
func TestCompletion(t *testing.T) {
	t.Parallel()
	byVariable := map[string]string{"UNSTALE_MAP": shippedMap}
	for _, c := range []struct {
		env  map[string]string
		args []string
		want string // the values, apart from descriptions
	}{
		{nil, []string{"hist"}, "history"},
		{nil, []string{"dead", "retry", "--dry"}, "--dry-run"},
		{nil, []string{"map", "explain", "--map", shippedMap, "--entity", "prod"}, "product"},
		{byVariable, []string{"history", "--entity", "inv"}, "inventory"},
		{byVariable, []string{"dead", "retry", "--set-entity", "vari"}, "variant"},
		{byVariable, []string{"enqueue", "prod"}, "product"},
		{byVariable, []string{"enqueue", "product", ""}, ""},
		{map[string]string{"UNSTALE_MAP": "absent.yaml"}, []string{"enqueue", ""}, ""},
		{nil, []string{"dead", "list", "--reason", "unknown"}, "unknown_entity"},
		{nil, []string{"pause", "--reason", ""}, ""},
		{nil, []string{"replay", "--format", ""}, "event array"},
		{nil, []string{"run", "--log-level", "d"}, "debug"},
		{nil, []string{"doctor", "--check", "que"}, "queue"},
		{nil, []string{"acl", "lock"}, "locker"},
	} {
		got := call(t, c.env, append([]string{"__complete"}, c.args...)...)
		var values []string
		for line := range strings.Lines(got.out) {
			value, _, _ := strings.Cut(strings.TrimSpace(line), "\t")
			if !strings.HasPrefix(value, ":") && strings.HasPrefix(value, c.args[len(c.args)-1]) { // shells filter too
				values = append(values, value)
			}
		}
		if text := strings.Join(values, " "); got.code != exitDone || text != c.want {
			t.Errorf("%v %q completes to %q, want %q; exit code %d, %s", c.env, c.args, text, c.want, got.code, got.err)
		}
	}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		if got := call(t, nil, "completion", shell); got.code != exitDone || !strings.Contains(got.out, "unstale") {
			t.Errorf("completion %s: %+v", shell, got)
		}
	}
}
