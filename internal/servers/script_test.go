package servers

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// mmdebstrap writes the padding of its archive late: after tar has found the end mark and exited.
// The stand-ins for both programs order it so. The padding is larger than the buffer of a pipe, so
// writing it to a closed pipe always fails.
func TestScriptUnpacksFromADelayedWriter(t *testing.T) {
	t.Parallel()
	dir, tree := t.TempDir(), t.TempDir()
	realTar, err := exec.LookPath("tar")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "unpacked"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	program(t, filepath.Join(dir, "tar"), realTar+` "$@" || exit; : >`+dir+`/ended`)
	program(t, filepath.Join(dir, "mmdebstrap"), realTar+` --create --directory `+dir+` ./unpacked
i=0; while [ ! -e `+dir+`/ended ] && [ $i -lt 3000 ]; do i=$((i + 1)); sleep 0.01; done
exec head -c 1048576 /dev/zero`)
	// Any $0 other than the script's own path: the script is sourced, and does not run main.
	cmd := exec.CommandContext(t.Context(), "bash", "-c", `source scripts/servers && suite_into "$1" sid redis-server`, "scripts/sourced", tree)
	cmd.Dir = "../.."
	cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("suite_into: %v\n%s", err, out)
	}
	if text, err := os.ReadFile(filepath.Join(tree, "unpacked")); err != nil || string(text) != "x" {
		t.Errorf("unpacked file = %q, %v", text, err)
	}
}
