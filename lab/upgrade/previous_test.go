package upgrade_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/unstale/unstale/internal/schema"
)

// A checkout is a directory with a copy of scripts/upgrade, which has no other file of the
// repository.
type checkout struct {
	t   *testing.T
	dir string
}

func newCheckout(t *testing.T) checkout {
	t.Helper()
	c := checkout{t, t.TempDir()}
	text, err := os.ReadFile(root + "/scripts/upgrade")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(c.dir, "scripts"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(c.dir, "scripts/upgrade"), text, 0o700); err != nil {
		t.Fatal(err)
	}
	return c
}

func (c checkout) git(args ...string) {
	c.t.Helper()
	args = append([]string{"-C", c.dir, "-c", "user.name=test", "-c", "user.email=test@localhost", "-c", "commit.gpgsign=false", "-c", "tag.gpgsign=false"}, args...)
	if out, err := exec.Command("git", args...).CombinedOutput(); err != nil {
		c.t.Fatalf("git %q: %v: %s", args, err, out)
	}
}

// says runs the script, which fails because the other files of the repository are missing, or earlier.
func (c checkout) says(text string) {
	c.t.Helper()
	out, err := exec.Command(filepath.Join(c.dir, "scripts/upgrade")).CombinedOutput()
	if err == nil || !strings.Contains(string(out), text) {
		c.t.Errorf("%v, wanted %q: %s", err, text, out)
	}
}

// The script and the error for older schemas name one commit.
func TestTheCommitWithTheSteps(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(root + "/scripts/upgrade")
	if err != nil || !strings.Contains(string(text), "\nreadonly steps="+schema.Steps+" ") {
		t.Errorf("%v, wanted %s", err, schema.Steps)
	}
}

// The script names the reason and the fix if the clone lacks the previous release. It chooses the
// last release before HEAD.
func TestThePreviousRelease(t *testing.T) {
	t.Parallel()
	c := newCheckout(t)
	c.says("there is no history here, and so no previous release to build; run this in a clone: git clone ")
	c.git("init", "-q")
	c.git("add", ".")
	c.git("commit", "-q", "-m", "one")
	c.says("of the previous release is missing; run: git fetch --tags origin")
	c.git("tag", "v0.1.0")
	c.git("tag", "cache/cacheotel/v0.1.9")
	c.says("of the previous release is missing") // HEAD is the first release
	c.git("commit", "-q", "--allow-empty", "-m", "two")
	c.says("the previous release is v0.1.0\n")
	c.says("the last one with the steps before the baseline, is missing; run: git fetch origin " + schema.Steps)
	c.git("tag", "v0.2.0-rc.1")
	c.git("commit", "-q", "--allow-empty", "-m", "three")
	c.git("tag", "v0.2.0")
	c.says("the previous release is v0.1.0\n")

	shallow := newCheckout(t)
	shallow.git("clone", "-q", "--depth", "1", "file://"+c.dir, "clone")
	shallow.dir = filepath.Join(shallow.dir, "clone")
	shallow.says("this clone is shallow, so the previous release may be missing; run: git fetch --unshallow --tags")
}
