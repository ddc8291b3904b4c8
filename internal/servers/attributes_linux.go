package servers

import "syscall"

// attributes make the child die with its parent, and keep it out of the parent's process group: Ctrl-C on a terminal is
// for the parent, which then stops its servers in order.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
