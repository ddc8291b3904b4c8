package servers_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unstale/unstale/internal/servers"
)

// parent returns a command that runs this test binary in another process: see beParent.
func parent(t *testing.T, role, folder string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	// Files of a killed parent are removed with the test.
	cmd.Env = append(os.Environ(), parentVariable+"="+role, servers.FolderVariable+"="+folder, "TMPDIR="+t.TempDir())
	cmd.Stderr = os.Stderr
	return cmd
}

func serversFolder(t *testing.T) string {
	t.Helper()
	folder, ok := servers.Folder()
	if !ok {
		t.Fatal("the tests run outside the checkout")
	}
	return folder
}

// Guarantee 2 of the package: a server never outlives its parent.
func TestServersDieWithAKilledParent(t *testing.T) {
	t.Parallel()
	cmd := parent(t, "wait", serversFolder(t))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, _ := bufio.NewReader(out).ReadString('\n')
	var pids [2]int
	if n, err := fmt.Sscan(line, &pids[0], &pids[1]); n != 2 {
		t.Fatalf("the parent printed %q: %v", line, err)
	}
	var handles []int
	for _, pid := range pids {
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			t.Fatalf("server process %d: %v", pid, err)
		}
		defer unix.Close(fd)
		handles = append(handles, fd)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	for i, fd := range handles {
		if err := waitForEnd(fd); err != nil {
			t.Errorf("server process %d: %v", pids[i], err)
		}
	}
}

// waitForEnd waits until the process behind a pidfd has ended.
func waitForEnd(fd int) error {
	limit := time.Now().Add(20 * time.Second)
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(time.Until(limit).Milliseconds()))
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return err
		case n == 0:
			return errors.New("still there 20 s after its parent was killed")
		default:
			return nil
		}
	}
}

// linkedFolder returns a .servers directory with the programs of the real one and no templates.
func linkedFolder(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	for _, tree := range []string{"root", "debian"} {
		if err := os.Symlink(filepath.Join(serversFolder(t), tree), filepath.Join(folder, tree)); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

func templates(t *testing.T, folder, pattern string) []string {
	t.Helper()
	var dirs []string
	paths, err := filepath.Glob(filepath.Join(folder, pattern))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			dirs = append(dirs, filepath.Base(path))
		}
	}
	return dirs
}

func TestTemplateIsMadeOnceByTwoProcesses(t *testing.T) {
	t.Parallel()
	folder := linkedFolder(t)
	results := make(chan error)
	for range 2 {
		cmd := parent(t, "template", folder)
		go func() {
			out, err := cmd.Output()
			if err != nil {
				err = fmt.Errorf("%w: %s", err, out)
			}
			results <- err
		}()
	}
	for range 2 {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
	if dirs := templates(t, folder, "template-*"); len(dirs) != 1 {
		t.Fatalf("templates: %v, want one", dirs)
	}
}

func TestTemplateOfAKilledMakerIsMadeAgain(t *testing.T) {
	t.Parallel()
	folder := linkedFolder(t)
	killed := parent(t, "template", folder)
	if err := killed.Start(); err != nil {
		t.Fatal(err)
	}
	for len(templates(t, folder, "template-*.tmp-*")) == 0 {
		if t.Context().Err() != nil || len(templates(t, folder, "template-*")) > 0 {
			break
		}
	}
	if err := killed.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = killed.Wait()
	if out, err := parent(t, "template", folder).Output(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if dirs := templates(t, folder, "template-*"); len(dirs) != 1 {
		t.Fatalf("templates: %v, want one and no leftovers", dirs)
	}
}
