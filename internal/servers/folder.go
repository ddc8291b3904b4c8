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
	// socketLimit is the kernel's limit for the path of a socket, less the length of the name.
	socketLimit = 107 - len("/mysql.sock.lock")
	// abandonedAfter protects a directory that was created but is not locked yet.
	abandonedAfter = time.Minute
)

// A folder is the directory of one server's data. It is locked while its process lives, so others
// can recognize an abandoned one.
type folder struct {
	path string
	lock *os.File
}

// newFolder creates a directory below parent, or below the system's temporary directory if parent
// is empty, and removes the directories that killed processes left.
func newFolder(parent string) (*folder, error) {
	if parent == "" {
		parent = os.TempDir()
	}
	removeAbandoned(parent)
	path, err := os.MkdirTemp(parent, folderPrefix)
	if err != nil {
		return nil, fmt.Errorf("create server directory: %w", err)
	}
	if len(path) > socketLimit {
		_ = os.Remove(path)
		return nil, fmt.Errorf("create server directory: %s is too long for a Unix socket (at most %d bytes)", path, socketLimit)
	}
	lock, err := lockFile(filepath.Join(path, lockName))
	if err != nil {
		_ = os.RemoveAll(path)
		return nil, fmt.Errorf("lock server directory: %w", err)
	}
	return &folder{path: path, lock: lock}, nil
}

func (f *folder) join(name string) string { return filepath.Join(f.path, name) }

// remove deletes the directory. It may be called twice.
func (f *folder) remove() error {
	err := os.RemoveAll(f.path)
	_ = f.lock.Close()
	if err != nil {
		return fmt.Errorf("remove server directory: %w", err)
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

// removeAbandoned deletes the directories below parent whose process is gone. It ignores
// directories that it may not change, such as another user's.
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
