package servers

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// A Disk is a small file system in memory, for example for a binary log. Making one takes the
// privilege to mount. The caller must Close it.
type Disk struct{ Dir string }

// NewDisk mounts a Disk of so many bytes. On systems other than Linux, the error is
// errors.ErrUnsupported.
func NewDisk(size int) (*Disk, error) {
	dir, err := os.MkdirTemp("", "unstale-disk-")
	if err != nil {
		return nil, err
	}
	if err := mountMemory(dir, size); err != nil {
		return nil, errors.Join(fmt.Errorf("mount a small disk: %w", err), os.Remove(dir))
	}
	return &Disk{dir}, nil
}

func (d *Disk) filler() string { return filepath.Join(d.Dir, "filler") }

// Fill leaves no space.
func (d *Disk) Fill() error {
	file, err := os.Create(d.filler())
	if err != nil {
		return err
	}
	defer file.Close()
	block := make([]byte, 1<<20)
	for err == nil {
		_, err = file.Write(block)
	}
	if errors.Is(err, syscall.ENOSPC) {
		return nil
	}
	return err
}

// Free ends Fill.
func (d *Disk) Free() error { return os.Remove(d.filler()) }

// Close unmounts the disk, even while a process has files of it open.
func (d *Disk) Close() error {
	return errors.Join(unmount(d.Dir), os.Remove(d.Dir))
}
