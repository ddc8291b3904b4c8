package servers

import (
	"os"
	"syscall"
)

// Thaw continues a frozen process.
func Thaw(p *os.Process) error { return p.Signal(syscall.SIGCONT) }

func (c *child) freeze() error { return Freeze(c.cmd.Process) }

func (c *child) thaw() error { return Thaw(c.cmd.Process) }
