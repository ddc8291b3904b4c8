package servers

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
)

// A child is one run of a program.
type child struct {
	cmd    *exec.Cmd
	exited chan struct{} // closed when the process has ended and was waited for
	err    error         // exit status, valid after exited is closed
}

// spawn starts cmd as Start does and writes its output to the file log.
func spawn(cmd *exec.Cmd, log string) (*child, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	ended, err := Start(cmd)
	if err != nil {
		return nil, err
	}
	c := &child{cmd: cmd, exited: make(chan struct{})}
	go func() {
		c.err = <-ended
		close(c.exited)
	}()
	return c, nil
}

// Start starts a program that dies with this process (Linux). The program runs outside this
// process's group, so Ctrl-C reaches only this process. The channel receives the result of Wait. Do
// not call Wait yourself, and do not give the program a pipe of package exec. Of cmd.SysProcAttr, Start
// keeps the Credential.
//
// The kernel ties the parent-death signal to the thread that started the child, not to the process.
// The goroutine that starts the child therefore stays on its thread until the child is gone.
func Start(cmd *exec.Cmd) (ended <-chan error, err error) {
	own := attributes()
	if cmd.SysProcAttr != nil {
		own.Credential = cmd.SysProcAttr.Credential
	}
	cmd.SysProcAttr = own
	started, waited := make(chan error), make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			waited <- cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	return waited, nil
}

// alive reports whether the process still runs.
func (c *child) alive() bool {
	select {
	case <-c.exited:
		return false
	default:
		return true
	}
}

// kill ends the process with SIGKILL and waits for it.
func (c *child) kill() {
	_ = c.cmd.Process.Kill() // an error means that it is gone already
	<-c.exited
}

// terminate ends the process with SIGTERM and waits. If ctx ends first, it kills the process and
// returns an error.
func (c *child) terminate(ctx context.Context) error {
	_ = c.cmd.Process.Signal(syscall.SIGTERM)
	_ = c.cmd.Process.Signal(syscall.SIGCONT) // a frozen process would never see SIGTERM
	select {
	case <-c.exited:
		return nil
	case <-ctx.Done():
		c.kill()
		return fmt.Errorf("wait for the end, killed instead: %w", context.Cause(ctx))
	}
}

// tail returns the last lines of a log for an error message.
func tail(log string) string {
	text, err := os.ReadFile(log)
	if err != nil {
		return "(no log: " + err.Error() + ")"
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if len(lines) > 15 {
		lines = lines[len(lines)-15:]
	}
	return strings.Join(lines, "\n")
}
