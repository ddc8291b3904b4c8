package verifylocks

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/unstale/unstale/internal/clock"
	"github.com/unstale/unstale/lab/rig"
)

// A crowd is the holder processes of one turn. One goroutine starts, disturbs and stops them.
type crowd struct {
	command []string
	spec    spec
	dir     string        // of the clocks' files
	jumps   bool          // holders have clocks that can be set
	clocks  []*clock.File // these
	started int           // so far; numbers them
	first   []string      // addresses of ZooKeeper for the first holder, if it has its own
	living  []*process    // none of them is permanently frozen
	dead    []*process    // killed
}

// A process is one holder.
type process struct {
	*rig.Process
	number int
	killed bool

	mu    sync.Mutex
	total []tally // of each lane
}

// start starts one more holder.
func (c *crowd) start() (err error) {
	p := &process{number: c.started, total: make([]tally, len(lanes))}
	c.started++
	var env []string
	if c.jumps {
		file, err := clock.NewFile(filepath.Join(c.dir, fmt.Sprintf("holder-%d-%d", c.spec.Turn, p.number)))
		if err != nil {
			return err
		}
		c.clocks = append(c.clocks, file)
		env = append(env, file.Env())
	}
	s := c.spec
	s.Process = p.number
	if p.number == 0 && c.first != nil {
		s.ZooKeeper = c.first
	}
	if p.Process, err = rig.StartProcess("a holder", c.command, env, s, p.hear); err != nil {
		return err
	}
	c.living = append(c.living, p)
	return nil
}

// hear adds the tallies of a holder.
func (p *process) hear(tallies []tally) error {
	if len(tallies) != len(lanes) {
		return fmt.Errorf("it reports %d lanes, want %d", len(tallies), len(lanes))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, t := range tallies {
		p.total[i].add(t)
	}
	return nil
}

// soFar returns what was told.
func (p *process) soFar() []tally {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]tally(nil), p.total...)
}

// all returns the living and the dead.
func (c *crowd) all() []*process { return append(append([]*process(nil), c.living...), c.dead...) }

// kill kills one of the living, and waits for its end. One that has ended by itself is not told
// from it.
func (c *crowd) kill(i int) {
	p := c.living[i]
	c.living = append(c.living[:i:i], c.living[i+1:]...)
	c.dead = append(c.dead, p)
	p.killed = true
	p.Kill()
}

// stop tells the holders to end and waits for them.
func (c *crowd) stop() error {
	for _, p := range c.living {
		p.Dismiss()
	}
	var errs []error
	deadline := time.Now().Add(patience)
	for _, p := range c.living {
		errs = append(errs, p.Wait(time.Until(deadline)))
	}
	for _, file := range c.clocks {
		errs = append(errs, file.Close())
	}
	return errors.Join(errs...)
}
