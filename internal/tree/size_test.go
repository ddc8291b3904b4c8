package tree

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// mostBytes is how large the released binary may be. What spends more raises it, in the commit that does.
const mostBytes = 18_000_000

// The released binary is small, and runs no template: a call of text/template's Execute finds methods by name, so that
// the linker has to keep every exported method of every type. (Package goose parses templates of its own, and runs none
// here.)
func TestSizeOfTheBinary(t *testing.T) {
	t.Parallel()
	stripped := filepath.Join(t.TempDir(), "unstale")
	release(t, stripped, "-s -w")
	info, err := os.Stat(stripped)
	if err != nil {
		t.Fatal(err)
	}
	if info.Size() > mostBytes {
		t.Errorf("the released binary has %d bytes, wanted %d at most", info.Size(), mostBytes)
	}
	whole := filepath.Join(t.TempDir(), "unstale")
	release(t, whole, "")
	symbols, err := exec.CommandContext(t.Context(), "go", "tool", "nm", whole).Output()
	if err != nil {
		t.Fatalf("list symbols: %v", err)
	}
	if !strings.Contains(string(symbols), " main.main\n") {
		t.Error("the list of symbols tells nothing")
	}
	if strings.Contains(string(symbols), "text/template.(*Template).Execute") {
		t.Error("the released binary runs templates of text/template")
	}
}

// release builds the program as the Dockerfile does.
func release(t *testing.T, path, flags string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags", flags, "-o", path, "./cmd/unstale")
	cmd.Dir = filepath.Join("..", "..")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
}
