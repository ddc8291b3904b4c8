package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/unstale/unstale/internal/testenv"
)

const root = "../.."

func TestMain(m *testing.M) { testenv.Main(m) }

// checkout is the absolute path of the source tree.
func checkout(t testing.TB) string {
	t.Helper()
	path, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// read returns a file of the checkout.
func read(t testing.TB, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// build makes the program in a folder of its own.
func build(t testing.TB) (program string) {
	t.Helper()
	program = filepath.Join(t.TempDir(), "unstale")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./cmd/unstale")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build unstale: %v\n%s", err, out)
	}
	return program
}
