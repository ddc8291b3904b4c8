//go:build !linux

package servers

import "syscall"

func (c *child) freeze() error { return c.cmd.Process.Signal(syscall.SIGSTOP) }

func (c *child) thaw() error { return c.cmd.Process.Signal(syscall.SIGCONT) }
