package servers

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

const (
	folderPrefix = "unstale-server-"
	lockName     = "lock"
	// socketLimit is what the kernel takes as a socket's path, with room for the name.
	socketLimit = 107 - len("/mysql.sock.lock")
	// abandonedAfter keeps a folder safe that is made but not locked yet.
	abandonedAfter = time.Minute
)

// A folder holds one server's data. It is locked for as long as its process lives, so that others can tell an abandoned
// one.
type folder struct {
	path string
	lock *os.File
}

// newFolder makes a folder below parent, or below the system's temporary folder when parent is empty, and removes those
// that killed processes left.
func newFolder(parent string) (*folder, error) {
	if parent == "" {
		parent = os.TempDir()
	}
	removeAbandoned(parent)
	path, err := os.MkdirTemp(parent, folderPrefix)
	if err != nil {
		return nil, fmt.Errorf("make server folder: %w", err)
	}
	if len(path) > socketLimit {
		_ = os.Remove(path)
		return nil, fmt.Errorf("make server folder: %s is too long for a Unix socket (%d bytes at most)", path, socketLimit)
	}
	lock, err := lockFile(filepath.Join(path, lockName))
	if err != nil {
		_ = os.RemoveAll(path)
		return nil, fmt.Errorf("lock server folder: %w", err)
	}
	return &folder{path: path, lock: lock}, nil
}

func (f *folder) join(name string) string { return filepath.Join(f.path, name) }

// remove deletes the folder. It may be called twice.
func (f *folder) remove() error {
	err := os.RemoveAll(f.path)
	_ = f.lock.Close()
	if err != nil {
		return fmt.Errorf("remove server folder: %w", err)
	}
	return nil
}

// lockFile opens path and locks it without waiting.
func lockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// removeAbandoned deletes the folders below parent whose process is gone. What it may not touch (another person's
// folder) it leaves alone.
func removeAbandoned(parent string) {
	paths, _ := filepath.Glob(filepath.Join(parent, folderPrefix+"*"))
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil || time.Since(info.ModTime()) < abandonedAfter {
			continue
		}
		if lock, err := lockFile(filepath.Join(path, lockName)); err == nil {
			_ = os.RemoveAll(path)
			_ = lock.Close()
		}
	}
}
