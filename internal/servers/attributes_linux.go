package servers

import "syscall"

// attributes make the child die with its parent and keep it out of the parent's process group. A
// Ctrl-C on a terminal then reaches only the parent, which stops its servers cleanly.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
