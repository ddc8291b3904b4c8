package clock

import (
	"fmt"
	"os"
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
