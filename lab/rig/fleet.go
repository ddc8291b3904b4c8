// Package rig runs the processes and servers that the fault suite and the checkers disturb:
// workers, as processes of the released program, known only by its command line; reader and holder
// processes; and Redis servers that replicate from each other.
package rig

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/unstale/unstale/internal/servers"
)

// A Fleet is the workers: processes of the program under test. Safe for concurrent use.
type Fleet struct {
	// Prefix begins the names of the workers, which end with a number from 1. Set it before Start.
	// Default "w".
	Prefix string
	// Each returns the settings of worker n, in addition to those of all. Set it before Start. Default
	// none.
	Each func(n int) []string

	binary string
	env    []string
	dir    string // of the map and the logs

	mu      sync.Mutex
	members []*Member
	started int // so far; numbers the logs
}

// A Member is one "unstale run".
type Member struct {
	cmd   *exec.Cmd
	log   string
	ended chan struct{} // closed when the process is gone
}

// New returns a fleet without members. It writes the map and the logs to dir, which the caller
// removes.
func New(binary, dir, mapText string, env []string) (*Fleet, error) {
	file := filepath.Join(dir, "map.yaml")
	if err := os.WriteFile(file, []byte(mapText), 0o600); err != nil {
		return nil, err
	}
	env = append([]string{"UNSTALE_MAP=" + file, "UNSTALE_LISTEN=-", "UNSTALE_LOG_FORMAT=json"}, env...)
	return &Fleet{Prefix: "w", binary: binary, env: env, dir: dir}, nil
}

// Remap replaces the file of the map, which workers read every two seconds.
func (f *Fleet) Remap(mapText string) error {
	file := filepath.Join(f.dir, "map.yaml")
	if err := os.WriteFile(file+".new", []byte(mapText), 0o600); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}

// Set changes a setting of the workers and commands that are started from now on.
func (f *Fleet) Set(name, value string) { f.env = append(f.env, name+"="+value) } // the last value wins

// Call runs one command of the program and returns what it printed.
func (f *Fleet) Call(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, f.binary, args...)
	cmd.Env = f.env
	out, err := cmd.CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("unstale %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(out))
	}
	return string(out), nil
}

// Start starts a worker with batches of that many rows.
func (f *Fleet) Start(batchRows int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.started++
	m := &Member{log: filepath.Join(f.dir, fmt.Sprintf("worker-%d.log", f.started)), ended: make(chan struct{})}
	out, err := os.Create(m.log)
	if err != nil {
		return err
	}
	defer out.Close()
	m.cmd = exec.Command(f.binary, "run", "--worker", fmt.Sprint(f.Prefix, f.started), "--batch-rows", fmt.Sprint(batchRows))
	m.cmd.Env, m.cmd.Stderr, m.cmd.Stdout = f.env, out, out
	if f.Each != nil {
		m.cmd.Env = slices.Concat(f.env, f.Each(f.started)) // the last value wins
	}
	ended, err := servers.Start(m.cmd)
	if err != nil {
		return fmt.Errorf("start a worker: %w", err)
	}
	go func() { <-ended; close(m.ended) }() // ProcessState has the exit status
	f.members = append(f.members, m)
	return nil
}

// Pick takes a worker out of the fleet, so that the caller has exclusive use of it.
func (f *Fleet) Pick(n int) *Member {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.members) == 0 {
		return nil
	}
	i := n % len(f.members)
	m := f.members[i]
	f.members = append(f.members[:i], f.members[i+1:]...)
	return m
}

// Back puts a worker back.
func (f *Fleet) Back(m *Member) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.members = append(f.members, m)
}

// Signal sends a signal and, if it ends the process, waits for that.
func (m *Member) Signal(ctx context.Context, s syscall.Signal, ends bool) error {
	if err := m.cmd.Process.Signal(s); err != nil {
		return fmt.Errorf("a worker ended by itself (%s); its log ends with:\n%s", m.cmd.ProcessState, tail(m.log))
	}
	if !ends {
		return nil
	}
	select {
	case <-m.ended:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// ExitCode returns how it ended, once Signal has waited for that.
func (m *Member) ExitCode() int { return m.cmd.ProcessState.ExitCode() }

// PeakMemory returns the most memory that the process has had so far, in bytes, as the kernel
// counts what is resident.
func (m *Member) PeakMemory() (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", m.cmd.Process.Pid))
	if err != nil {
		return 0, fmt.Errorf("read the memory of a worker: %w", err)
	}
	_, rest, found := strings.Cut(string(text), "VmHWM:")
	kilobytes := int64(0)
	if _, err := fmt.Sscanf(rest, "%d kB", &kilobytes); !found || err != nil {
		return 0, errors.New("read the memory of a worker: the kernel does not tell")
	}
	return kilobytes << 10, nil
}

// Tail returns the end of its log.
func (m *Member) Tail() string { return tail(m.log) }

// Alive returns an error if a worker ended that the fleet has not stopped.
func (f *Fleet) Alive() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	var errs []error
	for _, m := range f.members {
		select {
		case <-m.ended:
			errs = append(errs, fmt.Errorf("a worker ended by itself (%s); its log ends with:\n%s", m.cmd.ProcessState, tail(m.log)))
		default:
		}
	}
	return errors.Join(errs...)
}

// Tails returns the ends of the logs of the living.
func (f *Fleet) Tails() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var b strings.Builder
	for _, m := range f.members {
		state, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", m.cmd.Process.Pid)) // it may be gone
		fmt.Fprintf(&b, "  %s, %.40s:\n%s\n", filepath.Base(m.log), state, tail(m.log))
	}
	return b.String()
}

// KillAll kills all members.
func (f *Fleet) KillAll() {
	for m := f.Pick(0); m != nil; m = f.Pick(0) {
		_ = m.cmd.Process.Kill() // it may be gone already
		<-m.ended
	}
}

// Said counts the lines with a text in the logs of all workers so far.
func (f *Fleet) Said(text string) int { return len(f.Lines(text)) }

// Lines returns the lines with a text in the logs of all workers so far.
func (f *Fleet) Lines(text string) (lines []string) {
	logs, _ := filepath.Glob(filepath.Join(f.dir, "worker-*.log")) // the pattern is well-formed
	for _, log := range logs {
		b, err := os.ReadFile(log)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(b)) {
			if strings.Contains(line, text) {
				lines = append(lines, strings.TrimSpace(line))
			}
		}
	}
	return lines
}

// tail returns the end of a log.
func tail(log string) string {
	b, err := os.ReadFile(log)
	if err != nil {
		return err.Error()
	}
	return string(end(b))
}

// end returns the last lines of a log.
func end(log []byte) []byte { return log[max(0, len(log)-2000):] }
