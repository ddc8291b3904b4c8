package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/unstale/unstale/internal/testenv"
)

const root = "../.."

func TestMain(m *testing.M) { testenv.Main(m) }

// checkout returns the absolute path of the source tree.
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

// build builds the program as a user does, with make build in a copy of the checkout, and returns
// the copy.
func build(t testing.TB) (place string) {
	t.Helper()
	place = t.TempDir()
	entries, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		from, to := filepath.Join(root, entry.Name()), filepath.Join(place, entry.Name())
		switch {
		case strings.HasPrefix(entry.Name(), "."), slices.Contains([]string{"bin", "clients"}, entry.Name()): // not of the program
		case entry.IsDir():
			err = os.CopyFS(to, os.DirFS(from))
		default:
			err = os.WriteFile(to, []byte(read(t, entry.Name())), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "make", "build")
	cmd.Dir, cmd.Env = place, append(os.Environ(), "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("make build: %v\n%s", err, out)
	}
	return place
}

// publicPackages returns the packages that applications can import, from the snapshots of their API.
func publicPackages(t testing.TB) (names []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, "internal", "tree", "testdata", "api", "*.txt"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no snapshots: %v", err)
	}
	for _, file := range files {
		names = append(names, strings.ReplaceAll(strings.TrimSuffix(filepath.Base(file), ".txt"), "_", "/"))
	}
	return names
}
