package verify

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/unstale/unstale/internal/servers"
)

// endPatience is how long a reader may take to end.
const endPatience = 15 * time.Second

// A crowd is the reader processes of one turn.
type crowd struct {
	processes []*process

	mu    sync.Mutex
	total tallies
	ill   map[int]string // why a process' cache is not healthy, as it told last; "" for one that is
}

// A process is one reader.
type process struct {
	cmd    *exec.Cmd
	orders *os.File
	errors bytes.Buffer
	gone   <-chan error
	mail   chan pair // to be told
	ended  chan struct{}
	err    error // to be read after ended
}

// start starts a reader process for each of so many, as the spec says.
func (c *crowd) start(command []string, s spec, readers int) error {
	c.ill = map[int]string{}
	for i := range readers {
		s.Process = i
		p := &process{cmd: exec.Command(command[0], command[1:]...), ended: make(chan struct{}), mail: make(chan pair, 256)}
		p.cmd.Stderr = &p.errors
		out, err := p.start()
		if err != nil {
			return fmt.Errorf("start a reader: %w", err)
		}
		c.processes = append(c.processes, p)
		go func() {
			defer close(p.ended)
			defer out.Close()
			err := c.listen(out)
			p.err = errors.Join(err, <-p.gone)
		}()
		if err := json.NewEncoder(p.orders).Encode(s); err != nil {
			return fmt.Errorf("tell a reader what to read: %w", err)
		}
		go p.post()
	}
	return nil
}

// post hands on what is in the mail, until the process ends.
func (p *process) post() {
	encoder := json.NewEncoder(p.orders)
	for {
		select {
		case <-p.ended:
			return
		case m := <-p.mail:
			_ = encoder.Encode(m) // a reader that is gone has told why
		}
	}
}

// tell hands a pair to one of the readers, unless that one has too many.
func (c *crowd) tell(m pair) {
	select {
	case c.processes[int(m.Version)%len(c.processes)].mail <- m:
	default:
	}
}

// healthy are the processes whose caches say that they are.
func (c *crowd) healthy() (processes []int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, why := range c.ill {
		if why == "" {
			processes = append(processes, i)
		}
	}
	return processes
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

// listen adds up what a reader tells.
func (c *crowd) listen(out io.Reader) error {
	lines := bufio.NewReader(out)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		var t tallies
		if err := json.Unmarshal(line, &t); err != nil {
			return fmt.Errorf("read a reader's line: %w", err)
		}
		c.mu.Lock()
		c.total.add(t)
		c.ill[t.Process] = t.Healthy
		c.mu.Unlock()
	}
}

func (t *tallies) add(u tallies) {
	t.Reads += u.Reads
	t.Memory += u.Memory
	t.Redis += u.Redis
	t.Loaded += u.Loaded
	t.Stale += u.Stale
	t.Excused += u.Excused
	t.Errors += u.Errors
	t.Missed += u.Missed
	t.Refused += u.Refused
	t.Unsettled += u.Unsettled
	t.Pairs += u.Pairs
	if u.Error != "" {
		t.Error = u.Error
	}
	t.Stalls = append(t.Stalls, u.Stalls...)
	t.Found = append(t.Found, u.Found...)
}

// soFar returns what was told.
func (c *crowd) soFar() tallies {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.total
}

// stop tells the readers to end and waits for that.
func (c *crowd) stop() error {
	var errs []error
	for _, p := range c.processes {
		_ = p.orders.Close() // a reader that is gone has told why
	}
	for _, p := range c.processes {
		limit := time.AfterFunc(endPatience, func() { _ = p.cmd.Process.Kill() })
		<-p.ended
		limit.Stop()
		if p.err != nil {
			errs = append(errs, fmt.Errorf("a reader: %w: %s", p.err, bytes.TrimSpace(p.errors.Bytes())))
		}
	}
	return errors.Join(errs...)
}
