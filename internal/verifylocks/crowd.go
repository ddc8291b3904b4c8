package verifylocks

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/unstale/unstale/internal/clock"
	"github.com/unstale/unstale/internal/servers"
)

// A crowd is the holder processes of one turn. One goroutine starts, disturbs and stops them.
type crowd struct {
	command []string
	spec    spec
	dir     string        // of the clocks' files
	jumps   bool          // holders have clocks that can be set
	clocks  []*clock.File // these
	started int           // so far; numbers them
	living  []*process    // of which none is frozen for good
	dead    []*process    // killed
}

// A process is one holder.
type process struct {
	number int
	killed bool
	cmd    *exec.Cmd
	orders *os.File
	errors bytes.Buffer
	gone   <-chan error
	ended  chan struct{}
	err    error // to be read after ended

	mu    sync.Mutex
	total []tally // of each lane
}

// start starts one more holder.
func (c *crowd) start() error {
	p := &process{number: c.started, cmd: exec.Command(c.command[0], c.command[1:]...), ended: make(chan struct{}), total: make([]tally, len(lanes))}
	c.started++
	if c.jumps {
		file, err := clock.NewFile(filepath.Join(c.dir, fmt.Sprintf("holder-%d-%d", c.spec.Turn, p.number)))
		if err != nil {
			return err
		}
		c.clocks = append(c.clocks, file)
		p.cmd.Env = append(p.cmd.Environ(), file.Env())
	}
	p.cmd.Stderr = &p.errors
	out, err := p.start()
	if err != nil {
		return fmt.Errorf("start a holder: %w", err)
	}
	go func() {
		defer close(p.ended)
		defer out.Close()
		err := p.listen(out)
		p.err = errors.Join(err, <-p.gone)
	}()
	c.living = append(c.living, p)
	s := c.spec
	s.Process = p.number
	if err := json.NewEncoder(p.orders).Encode(s); err != nil {
		return fmt.Errorf("tell a holder what to do: %w", err)
	}
	return nil
}

// start starts the process and returns what it writes.
func (p *process) start() (out *os.File, err error) {
	in, orders, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer in.Close()
	out, lines, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, orders.Close())
	}
	defer lines.Close()
	p.cmd.Stdin, p.cmd.Stdout, p.orders = in, lines, orders
	if p.gone, err = servers.Start(p.cmd); err != nil {
		return nil, errors.Join(err, out.Close(), orders.Close())
	}
	return out, nil
}

// listen adds up what a holder tells. One that is killed ends in the middle of a line.
func (p *process) listen(out io.Reader) error {
	for lines := bufio.NewReader(out); ; {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		var tallies []tally
		if err := json.Unmarshal(line, &tallies); err != nil || len(tallies) != len(lanes) {
			return fmt.Errorf("read a holder's line: %q: %w", line, err)
		}
		p.mu.Lock()
		for i, t := range tallies {
			p.total[i].add(t)
		}
		p.mu.Unlock()
	}
}

// soFar returns what was told.
func (p *process) soFar() []tally {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]tally(nil), p.total...)
}

// all are the living and the dead.
func (c *crowd) all() []*process { return append(append([]*process(nil), c.living...), c.dead...) }

// kill kills one of the living, and waits for its end.
func (c *crowd) kill(i int) {
	p := c.living[i]
	c.living = append(c.living[:i:i], c.living[i+1:]...)
	c.dead = append(c.dead, p)
	p.killed = true
	_ = p.cmd.Process.Kill() // one that has ended by itself is found when all stop
	<-p.ended
	_ = p.orders.Close()
}

// signal sends a signal to one that lives.
func (p *process) signal(s syscall.Signal) error {
	if err := p.cmd.Process.Signal(s); err != nil {
		return fmt.Errorf("a holder has ended by itself: %w", err)
	}
	return nil
}

// stop tells the holders to end, and waits for that.
func (c *crowd) stop() error {
	var errs []error
	for _, p := range c.living {
		_ = p.orders.Close() // a holder that is gone has told why
	}
	for _, p := range c.living {
		limit := time.AfterFunc(patience, func() { _ = p.cmd.Process.Kill() })
		<-p.ended
		limit.Stop()
		if p.err != nil {
			errs = append(errs, fmt.Errorf("a holder: %w: %s", p.err, bytes.TrimSpace(p.errors.Bytes())))
		}
	}
	for _, file := range c.clocks {
		errs = append(errs, file.Close())
	}
	return errors.Join(errs...)
}
