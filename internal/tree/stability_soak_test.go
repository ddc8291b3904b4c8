//go:build soak

package tree

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// scripts/api has no base before the first release, accepts additions and the removal of a
// deprecated name, and reports each break of something stable.
func TestStability(t *testing.T) {
	t.Parallel()
	place := filepath.Join(t.TempDir(), "clone")
	git := func(args ...string) {
		t.Helper()
		args = append([]string{"-C", place, "-c", "user.name=unstale", "-c", "user.email=unstale"}, args...)
		if out, err := exec.CommandContext(t.Context(), "git", args...).CombinedOutput(); err != nil {
			t.Fatalf("git %q: %v\n%s", args, err, out)
		}
	}
	if out, err := exec.CommandContext(t.Context(), "git", "clone", "-q", "--no-tags", root, place).CombinedOutput(); err != nil {
		t.Fatalf("git clone: %v\n%s", err, out)
	}
	// A history of its own: this clone may be shallow.
	if err := os.RemoveAll(filepath.Join(place, ".git")); err != nil {
		t.Fatal(err)
	}
	git("init", "-q")
	git("add", "-A")
	git("commit", "-qm", "the tree")
	// edit replaces old in a file, or fails.
	edit := func(name, old, changed string) {
		t.Helper()
		text, err := os.ReadFile(filepath.Join(place, name))
		if err == nil && !strings.Contains(string(text), old) {
			t.Fatalf("%s has no %q", name, old)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(place, name), []byte(strings.ReplaceAll(string(text), old, changed)), 0o700)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	check := func(want string, breaks ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "scripts/api")
		cmd.Dir = place
		out, err := cmd.CombinedOutput()
		if said := string(out); (err == nil) != (len(breaks) == 0) || !strings.Contains(said, want) || strings.Count(said, "api: ") != 2+len(breaks) {
			t.Errorf("%v, wanted %q and %q:\n%s", err, want, breaks, said)
		}
		for _, line := range breaks {
			if !strings.Contains(string(out), "api: "+line+"\n") {
				t.Errorf("no line %q in\n%s", line, out)
			}
		}
	}

	out, err := exec.CommandContext(t.Context(), filepath.Join(place, "scripts", "api")).CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), "api: there is no earlier release") {
		t.Errorf("before the first release: %v\n%s", err, out)
	}
	edit("docs/installing.md", "| none | | |", "| `limit.Limiter.Forget` | 0.1.0 | `Reset` |")
	git("commit", "-qam", "a release")
	git("tag", "v0.1.0")
	edit("limit/limiter.go", ") Forget(", ") Reset(")
	edit("docs/installing.md", "| `limit.Limiter.Forget` | 0.1.0 | `Reset` |", "| none | | |")
	git("commit", "-qam", "the next release")
	git("tag", "v0.2.0")
	check("comparing with v0.1.0\n")

	edit("cache/cache.go", ") Clear() {", ") Clear(bool) {")
	edit("docs/observability.md", "| `unstale_heartbeat` |", "| `unstale_heart` |")
	edit("docs/observability.md", "| `unstale_rows_dead{reason}` | gauge |", "| `unstale_rows_dead` | counter |")
	edit("internal/doctor/finding.go", "`json:\"evidence,omitempty\"`", "`json:\"observation,omitempty\"`")
	edit("internal/history/past.go", "`json:\"messages\"` // of how", "`json:\"messages,string\"` // of how")
	edit("cmd/unstale/dead.go", `"older-than"`, `"min-age"`)
	edit("cmd/unstale/run.go", `Float64Var(&r.worker.SweepShare, "sweep-share", d.SweepShare`, `StringVar(new(string), "sweep-share", ""`)
	edit("invalidation/parse.go", "lookupEnv func(string) (string, bool)) (*Map, error) {", "lookupEnv func(string) (string, bool), _ ...bool) (*Map, error) {")
	edit("invalidation/question.go", ") Ranks() int", ") Ranks(...bool) int") // which is not stable
	edit("docs/settings.md", "\n| 4 |", "\n| 5 |")
	edit("migrations/00032_baseline.sql", "CREATE TABLE", "CREATE  TABLE")
	check("comparing with v0.1.0\n", "Go cache.Cache.Clear changed from func() to func(bool)",
		"Go invalidation.Parse changed from func(string, []byte, func(string) (string, bool)) (*Map, error) to func(string, []byte, func(string) (string, bool), ...bool) (*Map, error)",
		"metric unstale_heartbeat gauge is gone or different",
		"exit code 4 is gone", "metric unstale_rows_dead{reason} gauge is gone or different",
		"field of JSON internal/doctor evidence string is gone or different", "field of JSON internal/history messages number is gone or different",
		"program unstale-dead-list --older-than flag duration is gone or different", "program unstale-dead-retry --older-than flag duration is gone or different",
		"program unstale-dead-discard --older-than flag duration is gone or different",
		"program unstale-run --sweep-share flag float is gone or different", "program unstale-config --sweep-share flag float is gone or different",
		"migration 00032_baseline.sql is changed or gone")
}
