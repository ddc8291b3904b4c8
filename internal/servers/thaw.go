package servers

import (
	"os"
	"syscall"
)

// Thaw lets a frozen process go on.
func Thaw(p *os.Process) error { return p.Signal(syscall.SIGCONT) }

func (c *child) freeze() error { return Freeze(c.cmd.Process) }

func (c *child) thaw() error { return Thaw(c.cmd.Process) }
