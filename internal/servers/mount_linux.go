package servers

import (
	"fmt"
	"syscall"
)

// mountMemory mounts a file system in memory.
func mountMemory(dir string, size int) error {
	return syscall.Mount("unstale", dir, "tmpfs", syscall.MS_NOSUID|syscall.MS_NODEV|syscall.MS_NOEXEC, fmt.Sprintf("size=%d,mode=0777", size))
}

// unmount takes it away, even while a process has files of it open.
func unmount(dir string) error { return syscall.Unmount(dir, syscall.MNT_DETACH) }
