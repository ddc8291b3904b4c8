package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Each command has a man page with the text of its help, and with an example.
func TestMan(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if got := call(t, nil, "man", dir); got.code != exitDone {
		t.Fatal(got)
	}
	pages, err := filepath.Glob(filepath.Join(dir, "*.1"))
	if err != nil || len(pages) < 40 {
		t.Fatalf("%d pages, %v", len(pages), err)
	}
	for _, name := range pages {
		page, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		manName := strings.TrimSuffix(filepath.Base(name), ".1")
		for _, want := range []string{"\n.SH NAME\n", "\n.SH SYNOPSIS\n.B " + strings.ReplaceAll(manName, "-", " "), "\n.SH EXAMPLES\n"} {
			if !strings.Contains(string(page), want) {
				t.Errorf("%s does not contain %q", name, want)
			}
		}
	}
	run, err := os.ReadFile(filepath.Join(dir, "unstale-run.1"))
	if host, _ := os.Hostname(); err != nil || strings.Contains(string(run), host) {
		t.Errorf("unstale-run.1 depends on this machine: %v\n%s", err, run)
	}
	if text := string(run); !strings.Contains(text, `\-\-mysql\-dsn`) || !strings.Contains(text, "[MYSQL_DSN, MYSQL_DSN_FILE]") {
		t.Errorf("unstale-run.1 lacks a flag or its variable:\n%s", text)
	}
	index, err := os.ReadFile(filepath.Join(dir, "unstale.1"))
	if err != nil || !strings.Contains(string(index), `.BR unstale\-run (1)`) || strings.Contains(string(index), "unstale\\-man ") {
		t.Errorf("unstale.1: %v\n%s", err, index)
	}
}
