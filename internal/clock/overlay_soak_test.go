//go:build soak

package clock_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/unstale/unstale/internal/clock"
	"github.com/unstale/unstale/internal/testenv"
)

// The clock of a Go program is set, and time.Since of what it has read before counts on.
func TestOverlay(t *testing.T) {
	t.Parallel()
	goroot, err := exec.CommandContext(t.Context(), "go", "env", "GOROOT").Output()
	testenv.Must(t, err)
	overlay, err := clock.Overlay(strings.TrimSpace(string(goroot)), t.TempDir())
	testenv.Must(t, err)
	file, program := newFile(t), filepath.Join(t.TempDir(), "teller")
	build := exec.CommandContext(t.Context(), "go", "build", "-tags", clock.Tag, "-overlay", overlay, "-o", program, "./testdata/teller")
	build.Env = append(os.Environ(), "GOFLAGS=", "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	cmd := exec.CommandContext(t.Context(), program)
	cmd.Env = append(os.Environ(), file.Env())
	in, err := cmd.StdinPipe()
	testenv.Must(t, err)
	out, err := cmd.StdoutPipe()
	testenv.Must(t, err)
	testenv.Must(t, cmd.Start())
	for lines, i := bufio.NewScanner(out), 0; i < len(jumps); i++ {
		file.Set(jumps[i])
		_, err := fmt.Fprintln(in)
		testenv.Must(t, err)
		var seconds int64
		var monotonic bool
		if !lines.Scan() {
			t.Fatal("the program says nothing")
		}
		if _, err := fmt.Sscan(lines.Text(), &seconds, &monotonic); err != nil {
			t.Fatalf("the program says %q", lines.Text())
		}
		wantJump(t, time.Unix(seconds, 0), jumps[i])
		if !monotonic {
			t.Error("what counts since the program's start was set, too")
		}
	}
	testenv.Must(t, in.Close())
	testenv.Must(t, cmd.Wait())
}
