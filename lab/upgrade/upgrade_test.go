package upgrade_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/lab/upgrade"
)

func TestMain(m *testing.M) { testenv.Main(m) }

const root = "../.."

// sameTree builds this tree.
func sameTree(t *testing.T) upgrade.Release {
	t.Helper()
	r, err := upgrade.Build(t.Context(), root, t.TempDir(), false)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// The suite runs each phase with this tree as both releases, one of them with a step more. A run
// without a newer schema is refused.
func TestBothReleasesAreThisTree(t *testing.T) {
	t.Parallel()
	same := sameTree(t)
	more, err := upgrade.Build(t.Context(), root, t.TempDir(), true)
	if err != nil {
		t.Fatal(err)
	}
	version, err := upgrade.SchemaOf(root)
	if err != nil {
		t.Fatal(err)
	}
	cfg := upgrade.Config{Old: same, New: more, Flavor: servers.Kind(os.Getenv("UNSTALE_TEST_DB")), Rows: 100, Progress: t.Output()}
	r, err := upgrade.Run(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Phases) != 9 || len(r.Wrong) > 0 || r.Schemas != [2]int{version, version + 1} {
		t.Errorf("\n%s", r)
	}
	for _, p := range r.Phases {
		if p.Rows < 100 || p.Lost > 0 || p.Longest <= 0 || p.LongestOther <= 0 {
			t.Errorf("%+v", p)
		}
	}

	cfg.New = same
	if r, err := upgrade.Run(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "nothing would be tested") {
		t.Errorf("without a newer schema: %v\n%s", err, r)
	}
}

// The suite reports a worker that ends although it was not stopped, and a line of the level ERROR in a log.
func TestFailuresAreFound(t *testing.T) {
	t.Parallel()
	same := sameTree(t)
	for name, c := range map[string]struct{ script, want string }{
		"dies":  {`case $1 in run) exit 1;; esac`, "a worker ended by itself"},
		"error": {`case $1 in run) echo '{"level":"ERROR","msg":"cannot do it"}' >&2;; esac`, "cannot do it"},
	} {
		t.Run(name, func(t *testing.T) {
			broken := filepath.Join(t.TempDir(), "unstale")
			text := "#!/bin/sh\n" + c.script + "\nexec " + same.Program + " \"$@\"\n"
			if err := os.WriteFile(broken, []byte(text), 0o700); err != nil {
				t.Fatal(err)
			}
			r, err := upgrade.Run(t.Context(), upgrade.Config{
				Old: upgrade.Release{Program: broken, Reader: same.Reader}, New: same, Flavor: servers.Kind(os.Getenv("UNSTALE_TEST_DB")), Rows: 10,
			})
			var said bytes.Buffer
			if err != nil {
				said.WriteString(err.Error())
			}
			if r != nil {
				said.WriteString(r.String())
			}
			if !strings.Contains(said.String(), c.want) {
				t.Errorf("wanted %q:\n%s", c.want, said.String())
			}
		})
	}
}
