package clock

import (
	"bytes"
	_ "embed" // for the library's source
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

//go:embed preload/clock.c
var source []byte

// Library builds the library in dir, with what the variable CC names, gcc or cc, and returns what a
// C program needs in its environment beside Env of a File.
func Library(dir string) (env string, err error) {
	compiler := os.Getenv("CC")
	if compiler == "" {
		compiler = "gcc"
		if _, err := exec.LookPath(compiler); err != nil {
			compiler = "cc"
		}
	}
	file := filepath.Join(dir, "clock.so")
	cmd := exec.Command(compiler, "-O2", "-shared", "-fPIC", "-o", file, "-x", "c", "-")
	cmd.Stdin = bytes.NewReader(source)
	out, err := cmd.CombinedOutput()
	if errors.Is(err, exec.ErrNotFound) {
		return "", fmt.Errorf("build a library that sets a clock: %w; install gcc and libc6-dev", err)
	}
	if err != nil {
		return "", fmt.Errorf("build a library that sets a clock: %w: %s", err, bytes.TrimSpace(out))
	}
	return "LD_PRELOAD=" + file, nil
}
