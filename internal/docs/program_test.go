package docs

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

// The pages describe the program as it is.
func TestProgram(t *testing.T) {
	t.Parallel()
	place := build(t)
	program := filepath.Join(place, "bin", "unstale")
	for name, test := range map[string]func(*testing.T){
		"tutorial": func(t *testing.T) {
			testTutorial(t, place)
			testTutorialServers(t)
		},
		"adoption":     func(t *testing.T) { testAdoption(t, program) },
		"settings":     func(t *testing.T) { testSettings(t, program) },
		"compose":      func(t *testing.T) { testComposeCommands(t, program) },
		"compose shop": func(t *testing.T) { testComposeShop(t, place, program) },
		"kubernetes":   func(t *testing.T) { testKubernetes(t, program) },
		"runbook":      func(t *testing.T) { testRunbook(t, place, program) },
		"refusals":     func(t *testing.T) { testRefusals(t, program) },
		"worker":       func(t *testing.T) { testWorker(t, program) },
		"ids":          func(t *testing.T) { testIDs(t, program) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t)
		})
	}
}

const settingsPage = "docs/settings.md"

var (
	flagLine    = regexp.MustCompile(`(?m)^ +--([a-z-]+) .*\[([A-Z_, ]+)\](?: \(default "?([^")]*)"?\))?$`)
	defaultName = "worker" // its default is this host and process
)

// testSettings compares the table of docs/settings.md with the help of unstale run.
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
	for _, row := range table(t, settingsPage, "flag") {
		flag := flags[row[0]]
		delete(flags, row[0])
		switch {
		case flag == nil:
			t.Errorf("%s explains %s, which unstale run does not have", settingsPage, row[0])
		case row[1] != flag[0] || row[2] != flag[1] && row[0] != "--"+defaultName:
			t.Errorf("%s: %s has variable %q and default %q, wanted %q", settingsPage, row[0], row[1], row[2], flag)
		}
	}
	for flag := range flags {
		t.Errorf("%s does not explain %s", settingsPage, flag)
	}
}
