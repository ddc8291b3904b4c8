package verify

import (
	"errors"
	"sync"
	"time"

	"github.com/unstale/unstale/lab/rig"
)

// endPatience is how long a reader may take to end.
const endPatience = 15 * time.Second

// A crowd is the reader processes of one turn.
type crowd struct {
	processes []*process

	mu    sync.Mutex
	total tallies
	ill   map[int]string // reasons by process; "": healthy
}

// A process is one reader.
type process struct {
	*rig.Process
	mail chan pair // messages to send
}

// start starts the given number of reader processes with the spec. If polite, every second one only
// calls Get.
func (c *crowd) start(command []string, s spec, readers int, polite bool) error {
	c.ill = map[int]string{}
	for i := range readers {
		s.Process, s.Gets = i, polite && i%2 == 1
		started, err := rig.StartProcess("a reader", command, nil, s, c.hear)
		if err != nil {
			return err
		}
		p := &process{started, make(chan pair, 256)}
		c.processes = append(c.processes, p)
		go p.post()
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
			_ = p.Tell(m) // Wait reports why a reader has ended
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
	return nil
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

// stop tells the readers to end and waits for them.
func (c *crowd) stop() error {
	for _, p := range c.processes {
		p.Dismiss()
	}
	var errs []error
	for _, p := range c.processes {
		errs = append(errs, p.Wait(endPatience))
	}
	return errors.Join(errs...)
}
