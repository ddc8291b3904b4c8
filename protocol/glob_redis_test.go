package protocol

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Glob agrees with MATCH: the file has the results of a real Redis for random patterns and keys.
func TestGlobAgreesWithRedis(t *testing.T) {
	t.Parallel()
	src, err := os.ReadFile("testdata/redis_match.txt")
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	patterns := 0
	for line := range strings.Lines(string(src)) {
		kind, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		if kind == "#" {
			continue
		}
		quoted, err := strconv.QuotedPrefix(rest)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		text, err := strconv.Unquote(quoted)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if kind == "key" {
			keys = append(keys, text)
			continue
		}
		patterns++
		g, err := CompileGlob(text)
		if err != nil {
			t.Fatalf("CompileGlob(%q): %v", text, err)
		}
		found := strings.Fields(rest[len(quoted):])
		for i, key := range keys {
			if want := slices.Contains(found, strconv.Itoa(i)); g.Match(key) != want {
				t.Errorf("%q matches %q: %v, Redis says %v", text, key, !want, want)
			}
		}
	}
	if len(keys) == 0 || patterns == 0 {
		t.Errorf("%d keys, %d patterns", len(keys), patterns)
	}
}
