//go:build soak

package tree

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// mostBytes limits the size of the released binary. The SDK of OpenTelemetry brought it from less
// than 18 MB to 29 MB. A change that needs more raises the limit.
const mostBytes = 32_000_000

// The released binary is small.
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
}

// release builds the program as the Dockerfile does.
func release(t *testing.T, path, flags string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags", flags, "-o", path, "./cmd/unstale")
	cmd.Dir = filepath.Join("..", "..")
	cmd.Env = append(os.Environ(), "GOFLAGS=", "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
}
