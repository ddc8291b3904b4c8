package tree

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// forbidden matches a call of a Redis command that stops a server or reads all of it: by a method
// of go-redis, by name, or in a script.
var forbidden = regexp.MustCompile(`(?i)\.(Monitor|FlushAll|FlushAllAsync|FlushDB|FlushDBAsync|Shutdown(Save|NoSave)?|DebugObject)\(` +
	`|\.Keys\((\w*ctx|\w+\.Context\(\))\b` +
	`|(\.Do\(\w+, |call\()["'](MONITOR|KEYS|FLUSHALL|FLUSHDB|SHUTDOWN|DEBUG)["']`)

// Released code and its scripts never send MONITOR, KEYS or a command that empties or ends a
// server. The servers for tests and lab act as administrators.
func TestForbiddenCommands(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]bool{
		"client.Monitor(ctx, ch)":         true,
		`keys := client.Keys(ctx, "a:*")`: true,
		`client.Do(ctx, "keys", "*")`:     true,
		"redis.call('KEYS', '*')":         true,
		"pipe.FlushDBAsync(ctx)":          true,
		"maps.Keys(all)":                  false,
		`client.Do(ctx, "CLIENT", "ID")`:  false,
	} {
		if forbidden.MatchString(line) != want {
			t.Errorf("%s: forbidden is %t", line, !want)
		}
	}
	read := 0
	for _, p := range packages(t) {
		if isWithin(p.name(), "lab") || isWithin(p.name(), "internal/testenv") || isWithin(p.name(), "internal/servers") {
			continue
		}
		scripts, err := filepath.Glob(filepath.Join(p.Dir, "*.lua"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range p.GoFiles {
			scripts = append(scripts, filepath.Join(p.Dir, file))
		}
		for _, file := range scripts {
			src, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			read++
			for line := range strings.Lines(string(src)) {
				if forbidden.MatchString(line) && !strings.Contains(line, "s.provider.Shutdown(") {
					t.Errorf("%s: %s", file, strings.TrimSpace(line))
				}
			}
		}
	}
	if read < 300 {
		t.Errorf("%d files read: the test has lost its point", read)
	}
}
