package chaos

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	claimTimeout = 3 * time.Second // of the workers: what a frozen one costs
	workerMap    = `version: 1
lease: 1s # the shortest time until a sweep is settled, for which the judge has to wait
entities:
  thing: {keys: ["chaos:thing:{id}"]}
  many:  {params: [n], keys: ["chaos:thing:{id}", "chaos:part:{id}:{n}"]}
  shelf: {patterns: ["chaos:shelf:{id}:*"]}
params:
  n: {}
`
)

// A fleet is the workers: processes of the program under test.
type fleet struct {
	binary string
	env    []string
	dir    string // of the map and the logs

	mu      sync.Mutex
	members []*member
	started int // so far; numbers the logs
}

// A member is one "unstale run".
type member struct {
	cmd   *exec.Cmd
	log   string
	ended chan struct{} // closed when the process is gone
}

func newFleet(binary, dir string, env []string) (*fleet, error) {
	file := filepath.Join(dir, "map.yaml")
	if err := os.WriteFile(file, []byte(workerMap), 0o600); err != nil {
		return nil, err
	}
	env = append([]string{
		"UNSTALE_MAP=" + file, "UNSTALE_LISTEN=-", "UNSTALE_CLAIM_TIMEOUT=" + claimTimeout.String(),
		"UNSTALE_JOURNAL_RETENTION=10m", "UNSTALE_LOG_FORMAT=json", "UNSTALE_RETRY_DELAY=100ms",
	}, env...)
	return &fleet{binary: binary, env: env, dir: dir}, nil
}

// call runs one command of the program and returns what it printed.
func (c *fleet) call(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, c.binary, args...)
	cmd.Env = c.env
	out, err := cmd.CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("unstale %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(out))
	}
	return string(out), nil
}

// start starts a worker with batches of that many rows.
func (c *fleet) start(batchRows int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.started++
	m := &member{log: filepath.Join(c.dir, fmt.Sprintf("worker-%d.log", c.started)), ended: make(chan struct{})}
	out, err := os.Create(m.log)
	if err != nil {
		return err
	}
	defer out.Close()
	m.cmd = exec.Command(c.binary, "run", "--worker", fmt.Sprint("w", c.started), "--batch-rows", fmt.Sprint(batchRows))
	m.cmd.Env, m.cmd.Stderr, m.cmd.Stdout = c.env, out, out
	if err := m.cmd.Start(); err != nil {
		return fmt.Errorf("start a worker: %w", err)
	}
	go func() { _ = m.cmd.Wait(); close(m.ended) }() // ProcessState tells how it ended
	c.members = append(c.members, m)
	return nil
}

// pick takes a worker out of the fleet, so that whoever disturbs it is alone with it.
func (c *fleet) pick(n int) *member {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.members) == 0 {
		return nil
	}
	i := n % len(c.members)
	m := c.members[i]
	c.members = append(c.members[:i], c.members[i+1:]...)
	return m
}

// back puts a worker back.
func (c *fleet) back(m *member) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.members = append(c.members, m)
}

// signal sends a signal and, if it ends the process, waits for that.
func (m *member) signal(ctx context.Context, s syscall.Signal, ends bool) error {
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

// alive returns an error if a worker has ended although nobody told it to.
func (c *fleet) alive() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var errs []error
	for _, m := range c.members {
		select {
		case <-m.ended:
			errs = append(errs, fmt.Errorf("a worker ended by itself (%s); its log ends with:\n%s", m.cmd.ProcessState, tail(m.log)))
		default:
		}
	}
	return errors.Join(errs...)
}

// tails are the ends of the logs of the living.
func (c *fleet) tails() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var b strings.Builder
	for _, m := range c.members {
		state, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", m.cmd.Process.Pid)) // it may be gone
		fmt.Fprintf(&b, "  %s, %.40s:\n%s\n", filepath.Base(m.log), state, tail(m.log))
	}
	return b.String()
}

// killAll kills everybody.
func (c *fleet) killAll() {
	for m := c.pick(0); m != nil; m = c.pick(0) {
		_ = m.cmd.Process.Kill() // it may be gone already
		<-m.ended
	}
}

// said counts the lines with a text in the logs of all workers so far.
func (c *fleet) said(text string) (n int) {
	logs, _ := filepath.Glob(filepath.Join(c.dir, "worker-*.log")) // the pattern is well-formed
	for _, log := range logs {
		if b, err := os.ReadFile(log); err == nil {
			n += bytes.Count(b, []byte(text))
		}
	}
	return n
}

// tail is the end of a log.
func tail(log string) string {
	b, err := os.ReadFile(log)
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, len(b)-2000):])
}
