package clock

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// variable names, in the environment of a process, the file with its offset.
const variable = "UNSTALE_CLOCK_OFFSET"

// A File holds the offset of a process' clock, in whole seconds.
type File struct {
	path string
	page []byte
}

// NewFile makes a file with an offset of 0. The caller closes and removes it.
func NewFile(path string) (*File, error) {
	if err := os.WriteFile(path, make([]byte, 8), 0o600); err != nil {
		return nil, fmt.Errorf("make a clock's file: %w", err)
	}
	return open(path, unix.PROT_READ|unix.PROT_WRITE)
}

func open(path string, access int) (*File, error) {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("open a clock's file: %w", err)
	}
	defer file.Close()
	page, err := unix.Mmap(int(file.Fd()), 0, 8, access, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map a clock's file: %w", err)
	}
	return &File{path, page}, nil
}

func (f *File) offset() *int64 { return (*int64)(unsafe.Pointer(&f.page[0])) }

// Set makes a process' clock show the time that lies by offset after the true one, cut to seconds.
func (f *File) Set(offset time.Duration) { atomic.StoreInt64(f.offset(), int64(offset/time.Second)) }

// Env returns what a process needs in its environment beside its own means: see Overlay and
// Library.
func (f *File) Env() string { return variable + "=" + f.path }

// Close unmaps the file. Processes that follow it are not affected.
func (f *File) Close() error { return unix.Munmap(f.page) }

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

// Tag is the build tag of programs that are built with an overlay.
const Tag = "clockjump"

// What is replaced in GOROOT's time/time.go, once.
const (
	asItIs  = "func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n"
	asMoved = asItIs + "\tif ClockJump != nil {\n\t\tsec += *ClockJump\n\t}\n"
	added   = "\n// ClockJump is by how many seconds Now is ahead of the clock.\nvar ClockJump *int64\n"
)

// Overlay writes an overlay of GOROOT's package time to dir, and returns the file for 'go build
// -tags clockjump -overlay'. In programs that are built so, Follow works. It refuses a source that
// it does not know.
func Overlay(goroot, dir string) (file string, err error) {
	original := filepath.Join(goroot, "src", "time", "time.go")
	text, err := os.ReadFile(original)
	if err != nil {
		return "", fmt.Errorf("overlay time.Now: %w", err)
	}
	if n := strings.Count(string(text), asItIs); n != 1 {
		return "", fmt.Errorf("overlay time.Now: %s has %d places with the text that is to be replaced, wanted 1: this version of Go has changed it; "+
			"adapt internal/clock/overlay.go", original, n)
	}
	moved := strings.Replace(string(text), asItIs, asMoved, 1) + added
	replacement := filepath.Join(dir, "time.go")
	if err := os.WriteFile(replacement, []byte(moved), 0o600); err != nil {
		return "", fmt.Errorf("overlay time.Now: %w", err)
	}
	list, err := json.Marshal(map[string]map[string]string{"Replace": {original: replacement}})
	if err != nil {
		return "", err
	}
	file = filepath.Join(dir, "overlay.json")
	return file, os.WriteFile(file, list, 0o600)
}
