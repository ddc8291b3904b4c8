package upgrade_test

import (
	"os"
	"strings"
	"testing"

	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/lab/upgrade"
)

// A difference is found, and the program of the steps must have the steps.
func TestBaselineFindsDifferences(t *testing.T) {
	t.Parallel()
	same := sameTree(t)
	more, err := upgrade.Build(t.Context(), root, t.TempDir(), true)
	if err != nil {
		t.Fatal(err)
	}
	cfg := upgrade.BaselineConfig{Steps: more.Program, New: same.Program, Flavor: servers.Kind(os.Getenv("UNSTALE_TEST_DB")), Progress: t.Output()}
	wrong, err := upgrade.Baseline(t.Context(), cfg)
	if err != nil || len(wrong) != 3 || !strings.HasPrefix(wrong[0], "the database stepped differs from the empty one, for example in ") || !strings.Contains(wrong[0], "upgrade_test") {
		t.Errorf("%q, %v", wrong, err)
	}
	for i, name := range []string{"older", "interrupted"} {
		if want := "the database " + name + ": a step back goes to version 0, and not to version 20"; len(wrong) == 3 && wrong[i+1] != want {
			t.Errorf("%q, wanted %q", wrong[i+1], want)
		}
	}
}
