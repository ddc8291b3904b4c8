package forgotten_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/lab/forgotten"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// The short form: every path is found, and nothing else.
func TestForgottenWritesAreFound(t *testing.T) {
	t.Parallel()
	binary := filepath.Join(t.TempDir(), "unstale")
	if out, err := exec.Command("go", "build", "-C", "../..", "-o", binary, "./cmd/unstale").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	report, err := forgotten.Run(t.Context(), forgotten.Config{
		Binary: binary, Flavor: servers.Kind(os.Getenv("UNSTALE_TEST_DB")), Reads: 20_000, Writes: 50, Fraction: 0.5, Progress: t.Output(),
	})
	if report != nil {
		t.Logf("\n%s", report)
	}
	if err != nil {
		t.Fatal(err)
	}
	s := report.Shadow
	if report.Missed() > 0 || len(report.False) > 0 || s.Equal == 0 {
		t.Errorf("%d paths were not found; confirmed without one: %q; %d equal", report.Missed(), report.False, s.Equal)
	}
}
