package servers

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// freeze stops every thread of the process. The kernel reports a stop to the parent when the last thread has stopped.
func (c *child) freeze() error {
	if err := c.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	for {
		err := unix.Waitid(unix.P_PID, c.cmd.Process.Pid, nil, unix.WSTOPPED|unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

func (c *child) thaw() error { return c.cmd.Process.Signal(syscall.SIGCONT) }
