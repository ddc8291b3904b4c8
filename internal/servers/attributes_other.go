//go:build !linux

package servers

import "syscall"

// attributes keep the child out of the parent's process group. Only Linux has a parent-death
// signal.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
