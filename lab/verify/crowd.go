package verify

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/unstale/unstale/lab/rig"
)

// packageCache is the name of readers in Go.
const packageCache = "package cache"

// endPatience is how long a reader may take to end.
const endPatience = 15 * time.Second

// A crowd is the reader processes of one turn.
type crowd struct {
	processes []*process

	mu    sync.Mutex
	total tallies
	each  []tallies      // counts by process
	ill   map[int]string // reasons by process; "": healthy
}

// A process is one reader.
type process struct {
	*rig.Process
	name string     // of the client
	mail chan pair  // messages to send
	take func(pair) // sends one
	stop func() error
}

// start starts the reader processes with the spec. If polite, every second one of package cache
// only calls Get.
func (c *crowd) start(cfg Config, s spec, polite bool) error {
	c.ill, c.each = map[int]string{}, make([]tallies, cfg.processes())
	plant := s.Plant
	if len(cfg.Clients) > 0 {
		s.Plant = ""
	}
	for s.Process = range cfg.processes() {
		s.Gets = polite && s.Process < cfg.Readers && s.Process%2 == 1
		p := &process{name: packageCache, mail: make(chan pair, 256)}
		if i := s.Process - cfg.Readers; i >= 0 {
			started, err := startClient(cfg.Clients[i/clientCopies], plant, s, c.hear)
			if err != nil {
				return errors.Join(err, started.stop())
			}
			p.Process, p.name, p.take, p.stop = started.process, started.name, started.host.prover.take, started.stop
		} else {
			started, err := rig.StartProcess("a reader", cfg.Reader, nil, s, c.hear)
			if err != nil {
				return err
			}
			p.Process = started
			p.take = func(m pair) { _ = started.Tell(m) } // Wait reports why a reader has ended
			p.stop = func() error { started.Dismiss(); return started.Wait(endPatience) }
		}
		c.processes = append(c.processes, p)
		go p.post()
	}
	return nil
}

// alive returns an error if a reader has ended. At the end of a turn, it also returns one if a client
// has not read anything.
func (c *crowd) alive(end bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, p := range c.processes {
		select {
		case <-p.Ended():
			return fmt.Errorf("reader %d (%s) has ended", i, p.name)
		default:
		}
		if end && p.name != packageCache && c.each[i].Reads == 0 {
			return fmt.Errorf("reader %d (%s) has answered no read: %s", i, p.name, c.each[i].Error)
		}
	}
	return nil
}

// post delivers the mail until the process ends.
func (p *process) post() {
	for {
		select {
		case <-p.Ended():
			return
		case m := <-p.mail:
			p.take(m)
		}
	}
}

// tell hands a pair to one of the readers, unless its queue is full.
func (c *crowd) tell(m pair) {
	select {
	case c.processes[int(m.Version)%len(c.processes)].mail <- m:
	default:
	}
}

// healthy returns the processes whose caches report that they are healthy.
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

// hear adds the tallies of a reader.
func (c *crowd) hear(t tallies) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.total.add(t)
	c.ill[t.Process] = t.Healthy
	t.Stalls, t.Found = nil, nil
	c.each[t.Process].add(t)
	return nil
}

func (t *tallies) add(u tallies) {
	t.Reads += u.Reads
	t.Memory += u.Memory
	t.Redis += u.Redis
	t.Loaded += u.Loaded
	t.Expired += u.Expired
	t.Stale += u.Stale
	t.Excused += u.Excused
	t.Errors += u.Errors
	t.Missed += u.Missed
	t.Refused += u.Refused
	t.Unsettled += u.Unsettled
	t.Pairs += u.Pairs
	t.Shadows += u.Shadows
	t.Differed += u.Differed
	if u.Error != "" {
		t.Error = u.Error
	}
	t.Stalls = append(t.Stalls, u.Stalls...)
	t.Found = append(t.Found, u.Found...)
}

// soFar returns the tallies so far.
func (c *crowd) soFar() tallies {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.total
}

// stop ends the readers.
func (c *crowd) stop() error {
	var errs []error
	for _, p := range c.processes {
		errs = append(errs, p.stop())
	}
	return errors.Join(errs...)
}
