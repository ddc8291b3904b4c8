package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/unstale/unstale/internal/testenv"
)

// What a page says about the program is what the program says.
func TestProgram(t *testing.T) {
	t.Parallel()
	program := build(t)
	t.Run("consoles", func(t *testing.T) {
		t.Parallel()
		testConsoles(t, program)
	})
	t.Run("settings", func(t *testing.T) {
		t.Parallel()
		testSettings(t, program)
	})
	t.Run("compose", func(t *testing.T) {
		t.Parallel()
		testComposeCommands(t, program)
	})
	t.Run("refusals", func(t *testing.T) {
		t.Parallel()
		testRefusals(t, program)
	})
	t.Run("worker", func(t *testing.T) {
		t.Parallel()
		testWorker(t, program)
	})
}

// testConsoles types what the console blocks of the README show, in one place from top to bottom, against an empty
// database. Three dots stand for any text.
func testConsoles(t *testing.T, program string) {
	place := t.TempDir()
	if err := os.Mkdir(filepath.Join(place, "bin"), 0o700); err != nil {
		t.Fatal(err)
	}
	for from, to := range map[string]string{program: "bin/unstale", filepath.Join(checkout(t), "mapping.yaml"): "mapping.yaml"} {
		if err := os.Symlink(from, filepath.Join(place, to)); err != nil {
			t.Fatal(err)
		}
	}
	env := []string{"PATH=" + os.Getenv("PATH"), "MYSQL_DSN=" + testenv.MySQL(t).DSN, "REDIS_URL=" + testenv.Redis(t).URL}
	for _, b := range blocks(t, "README.md", "console") {
		for _, typed := range strings.Split("\n"+b.text, "\n$ ")[1:] {
			command, shown, _ := strings.Cut(typed, "\n")
			cmd := exec.CommandContext(t.Context(), "sh", "-c", command)
			cmd.Dir, cmd.Env = place, env
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Errorf("README.md:%d: %s: %v", b.line, command, err)
			}
			parts := strings.Split(strings.TrimSpace(shown), "...")
			for i, part := range parts {
				parts[i] = regexp.QuoteMeta(part)
			}
			if !regexp.MustCompile("^" + strings.Join(parts, ".*") + "$").MatchString(strings.TrimSpace(string(out))) {
				t.Errorf("README.md:%d: %s\nsays:\n%swanted:\n%s", b.line, command, out, shown)
			}
		}
	}
}

var (
	flagLine    = regexp.MustCompile(`(?m)^ +--([a-z-]+) .*\[([A-Z_]+)\](?: \(default "?([^")]*)"?\))?$`)
	defaultName = "worker" // its default is this host and process
)

// testSettings compares the README's table of settings with the help of unstale run.
func testSettings(t *testing.T, program string) {
	help, err := exec.CommandContext(t.Context(), program, "run", "--help").Output()
	if err != nil {
		t.Fatal(err)
	}
	flags := map[string][]string{}
	for _, match := range flagLine.FindAllStringSubmatch(string(help), -1) {
		flags["--"+match[1]] = match[2:]
	}
	if len(flags) < 15 {
		t.Fatalf("%d flags read from:\n%s", len(flags), help)
	}
	for _, row := range table(t, "README.md", "flag") {
		flag := flags[row[0]]
		delete(flags, row[0])
		switch {
		case flag == nil:
			t.Errorf("README.md explains %s, which unstale run does not have", row[0])
		case row[1] != flag[0] || row[2] != flag[1] && row[0] != "--"+defaultName:
			t.Errorf("README.md: %s has variable %q and default %q, wanted %q", row[0], row[1], row[2], flag)
		}
	}
	for flag := range flags {
		t.Errorf("README.md does not explain %s", flag)
	}
}
