package servers

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Freeze stops every thread of a child of this process and returns when all have stopped. The
// kernel reports a stop to the parent when the last thread has stopped.
func Freeze(p *os.Process) error {
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	for {
		err := unix.Waitid(unix.P_PID, p.Pid, nil, unix.WSTOPPED|unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
