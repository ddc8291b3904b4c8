package chaos_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/lab/chaos"
)

func TestMain(m *testing.M) {
	testenv.Main(m)
}

// The short form of the fault suite: every fault once, with the program as it is built for release.
func TestNothingIsLost(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "unstale")
	if out, err := exec.Command("go", "build", "-C", "../..", "-o", binary, "./cmd/unstale").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	report, err := chaos.Run(ctx, chaos.Config{
		Binary: binary, Flavor: servers.Kind(os.Getenv("UNSTALE_TEST_DB")), Round: 15 * time.Second, Writers: 6, Progress: t.Output(),
	})
	if report != nil {
		t.Logf("\n%s", report)
	}
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Lost) > 0 {
		t.Errorf("repeat it with: make chaos SEED=%d", report.Seed)
	}
	if report.Proven() == 0 || report.Heals == 0 {
		t.Errorf("%d transactions proven, %d heals: nothing was tested", report.Proven(), report.Heals)
	}
}
