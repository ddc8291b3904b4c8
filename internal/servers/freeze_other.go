//go:build !linux

package servers

import (
	"os"
	"syscall"
)

// Freeze asks a process to stop.
func Freeze(p *os.Process) error { return p.Signal(syscall.SIGSTOP) }
