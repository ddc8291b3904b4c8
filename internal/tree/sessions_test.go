package tree

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// opens matches every way to open a MySQL session.
var opens = regexp.MustCompile(`\b(sql\.Open|sql\.OpenDB|sqlx\.(Open|Connect|MustOpen|MustConnect)|mysql\.NewConnector|mysql\.MySQLDriver)\b`)

// Released code opens MySQL sessions in one place, which pins their settings. The demo, the bench
// and the servers for tests act as applications and administrators.
func TestSessionsAreOpenedInOnePlace(t *testing.T) {
	t.Parallel()
	found := 0
	released := list(t, "./cmd/unstale")[0]
	for _, p := range packages(t) {
		if p.ImportPath != released.ImportPath && !slices.Contains(released.Deps, p.ImportPath) {
			continue
		}
		for _, file := range p.GoFiles {
			src, err := os.ReadFile(filepath.Join(p.Dir, file))
			if err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(string(src)) {
				if !opens.MatchString(line) || strings.HasPrefix(strings.TrimSpace(line), "//") {
					continue
				}
				if found++; p.name()+"/"+file != "internal/session/session.go" {
					t.Errorf("%s/%s opens sessions whose settings are not pinned: %s", p.name(), file, strings.TrimSpace(line))
				}
			}
		}
	}
	if found != 2 {
		t.Errorf("%d places, wanted a connector and its pool", found)
	}
}
