package rig

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/unstale/unstale/internal/servers"
)

// A Process is a child that takes orders and reports what it does, each in lines of JSON, until its
// orders end. One goroutine starts, disturbs and stops it.
type Process struct {
	name   string // in errors
	cmd    *exec.Cmd
	orders *os.File
	to     *json.Encoder
	ended  chan struct{}
	over   atomic.Bool  // it was dismissed
	errors bytes.Buffer // to be read after ended
	err    error        // likewise
}

// StartProcess starts a command, with env added to the variables of this process, and gives it a
// first order. It calls hear for each line that the command writes. name is for errors, for example
// "a reader".
func StartProcess[T any](name string, command, env []string, order any, hear func(T) error) (*Process, error) {
	p := &Process{name: name, cmd: exec.Command(command[0], command[1:]...), ended: make(chan struct{})}
	p.cmd.Env, p.cmd.Stderr = append(p.cmd.Environ(), env...), &p.errors
	out, gone, err := p.start()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		defer close(p.ended)
		// A child whose output is no longer read must not block here, and is of no use.
		err := listen(out, hear)
		if err != nil {
			_ = p.Signal(syscall.SIGKILL)
		}
		err = errors.Join(err, out.Close())
		if p.err = errors.Join(err, <-gone); p.err == nil && !p.over.Load() {
			p.err = errors.New("it has ended by itself")
		}
	}()
	if err := p.Tell(order); err != nil {
		p.Dismiss()
		return nil, errors.Join(err, p.Wait(10*time.Second)) // why it has ended
	}
	return p, nil
}

// start starts the process and returns its output, and a channel that receives its end.
func (p *Process) start() (out *os.File, gone <-chan error, err error) {
	in, orders, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	defer in.Close()
	out, lines, err := os.Pipe()
	if err != nil {
		return nil, nil, errors.Join(err, orders.Close())
	}
	defer lines.Close()
	p.cmd.Stdin, p.cmd.Stdout, p.orders, p.to = in, lines, orders, json.NewEncoder(orders)
	if gone, err = servers.Start(p.cmd); err != nil {
		return nil, nil, errors.Join(err, out.Close(), orders.Close())
	}
	return out, gone, nil
}

// listen reads until the process ends. One that is killed ends in the middle of a line.
func listen[T any](out io.Reader, hear func(T) error) error {
	for lines := bufio.NewReader(out); ; {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		var told T
		if err == nil {
			err = json.Unmarshal(line, &told)
		}
		if err == nil {
			err = hear(told)
		}
		if err != nil {
			return fmt.Errorf("read a line: %q: %w", line, err)
		}
	}
}

// Tell gives an order. One goroutine at a time can call it.
func (p *Process) Tell(order any) error {
	if err := p.to.Encode(order); err != nil {
		return fmt.Errorf("tell %s what to do: %w", p.name, err)
	}
	return nil
}

// Ended returns a channel that is closed when the process has ended.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Signal sends a signal to the process and its children.
func (p *Process) Signal(s syscall.Signal) error {
	if err := syscall.Kill(-p.cmd.Process.Pid, s); err != nil {
		return fmt.Errorf("%s has ended by itself: %w", p.name, err)
	}
	return nil
}

// Kill kills the process and waits for its end.
func (p *Process) Kill() {
	_ = p.Signal(syscall.SIGKILL) // it may be gone already
	<-p.ended
	_ = p.orders.Close()
}

// Dismiss ends the orders. The process then ends.
func (p *Process) Dismiss() {
	p.over.Store(true)
	_ = p.orders.Close() // Wait reports why a process ended early
}

// DismissWith writes a last order, which may end the process, and ends the orders.
func (p *Process) DismissWith(order any) {
	p.over.Store(true)
	_ = p.Tell(order) // Wait reports why a process ended early
	p.Dismiss()
}

// Wait waits for the end of a dismissed process, and kills it if that takes longer than patience.
// The error has its exit status.
func (p *Process) Wait(patience time.Duration) error {
	limit := time.AfterFunc(patience, func() { _ = p.Signal(syscall.SIGKILL) })
	<-p.ended
	limit.Stop()
	if p.err != nil {
		return fmt.Errorf("%s: %w: %s", p.name, p.err, bytes.TrimSpace(end(p.errors.Bytes())))
	}
	return nil
}
