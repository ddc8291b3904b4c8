package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestCommands(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]struct {
		code int
		text string
	}{
		"":                {2, "Usage: peers"},
		"--help":          {0, "Usage: peers"},
		"boats":           {2, `unknown command "boats"`},
		"outboxes --help": {0, "make bench-peers"},
		"caches --help":   {0, "make bench-cache-peers"},
		"locks --help":    {0, "make bench-locks"},
	} {
		var out bytes.Buffer
		if code := run(t.Context(), strings.Fields(args), &out, &out); code != want.code || !strings.Contains(out.String(), want.text) {
			t.Errorf("%q: exit code %d, wanted %d with %q\n%s", args, code, want.code, want.text, &out)
		}
	}
}
