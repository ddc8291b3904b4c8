package verify

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/unstale/unstale/cache"
	"github.com/unstale/unstale/lab/conform"
	"github.com/unstale/unstale/lab/rig"
)

const (
	clientCopies   = 2                // processes of each client
	clientPatience = 30 * time.Second // until the answer to a line
	clientTimeout  = 250 * time.Millisecond
	// TTL of every second key in a client. Its value may then be returned expired, for as long as the
	// TTL of the phase.
	expiring = 100 * time.Millisecond
)

// A client is a reader process in any language, which speaks the lines of lab/conform. This process
// decides what it reads, loads for it and checks what it returns.
type client struct {
	process *rig.Process
	host    *reader
	name    string
	ready   conform.Line
	opened  chan struct{} // closed when ready is set
	life    context.Context
	end     context.CancelFunc
	reading sync.WaitGroup // until life ends
	loads   sync.WaitGroup
	master  net.Listener // nil: it connects to a server or a link

	telling sync.Mutex

	mu      sync.Mutex
	number  int                         // of the latest line
	waiting map[int]chan<- conform.Line // fetches, by their number
	stats   conform.Line                // the latest, and those that were counted
	told    conform.Line
	failure error // why it was killed
}

// startClient starts a process of a client, waits until it is ready and begins to read through it.
// Counts go to told. The caller must stop it, also after an error.
func startClient(command, plant string, s spec, told func(tallies) error) (c *client, err error) {
	c = &client{name: command, host: &reader{spec: s}, opened: make(chan struct{}), waiting: map[int]chan<- conform.Line{}}
	c.host.outside, c.host.Plant, c.host.Subscriber, c.host.Stock = c, "", "", 0
	c.life, c.end = context.WithCancel(context.Background())
	if err := c.host.open(); err != nil {
		return c, err
	}
	hello := conform.Line{
		Type: conform.LineHello, Version: conform.DriverVersion, Prefix: "verify:", Channel: channel, Period: time.Second.Milliseconds(),
		Lease: lease.Milliseconds(), TTL: s.TTL.Milliseconds(), Timeout: clientTimeout.Milliseconds(), Source: strings.Join(s.Sources, ","), MySQL: s.MySQLURL, Cluster: len(s.Cluster) > 0,
	}
	addr, err := c.address(&s)
	if err != nil {
		return c, err
	}
	hello.Redis = fmt.Sprintf("redis://%s/%d", addr, s.DB)
	c.process, err = rig.StartProcess(fmt.Sprintf("the client %q", command), []string{"sh", "-c", command}, []string{"UNSTALE_PLANT=" + plant}, hello, c.hear)
	if err != nil {
		return c, err
	}
	select {
	case <-c.opened:
		c.name = c.ready.Name
		c.reading.Go(func() { _ = c.host.work(c.life, told) }) // told does not fail
		return c, nil
	case <-c.process.Ended():
	case <-time.After(clientPatience):
		c.fail(fmt.Errorf("no line for %s", clientPatience))
	}
	return c, fmt.Errorf("the client %q does not become ready", command)
}

// address returns where the client finds Redis. It has one address for all its connections, so those
// of a disturbed subscription are all disturbed.
func (c *client) address(s *spec) (addr string, err error) {
	switch {
	case len(s.Cluster) > 0:
		return s.Cluster[0], nil
	case s.Master != "":
		if c.master, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			return "", err
		}
		go c.lead()
		return c.master.Addr().String(), nil
	}
	return cmp.Or(s.Subscriber, s.Redis), nil
}

// lead connects the client to the server that is the master then. Connections stay there.
func (c *client) lead() {
	for {
		in, err := c.master.Accept()
		if err != nil {
			return // closed
		}
		go func() {
			defer in.Close()
			out, err := c.host.dialMaster(c.life, "tcp", "")
			if err != nil {
				return
			}
			go func() {
				defer out.Close()
				_, _ = io.Copy(out, in) // either end may close
			}()
			_, _ = io.Copy(in, out)
		}()
	}
}

// hear takes a line of the client.
func (c *client) hear(l conform.Line) error {
	switch l.Type {
	case conform.LineReady:
		if l.Version != conform.DriverVersion || c.ready.Type != "" {
			return fmt.Errorf("wanted one line that is ready for version %d", conform.DriverVersion)
		}
		c.ready = l
		close(c.opened)
	case conform.LineLoad:
		for _, name := range l.Keys {
			if _, ours := c.host.loader.keys[name]; !ours {
				return fmt.Errorf("it loads %q, a key that it was not asked for", name)
			}
		}
		c.loads.Go(func() { c.load(l) })
	case conform.LineResult:
		c.mu.Lock()
		defer c.mu.Unlock()
		came := c.waiting[l.ID]
		if came == nil {
			return fmt.Errorf("%d is not a fetch that is under way", l.ID)
		}
		delete(c.waiting, l.ID)
		came <- l
	case conform.LineStats:
		c.mu.Lock()
		defer c.mu.Unlock()
		c.stats = l
	default:
		return fmt.Errorf("unknown type %q", l.Type)
	}
	return nil
}

// load reads what the client asks for, as slowly as for package cache.
func (c *client) load(l conform.Line) {
	out := conform.Line{Type: conform.LineLoaded, ID: l.ID}
	var err error
	if len(l.Keys) == 1 {
		name, value := l.Keys[0], ""
		value, err = c.host.loader.load(c.life, c.host.loader.keys[name])
		out.Values = map[string]string{name: value}
	} else {
		out.Values, err = c.host.loader.loadMany(c.life, l.Keys)
	}
	if err != nil {
		out.Values, out.Error = nil, err.Error()
	}
	c.tell(out)
}

// sources are the sources of values, by their names in lines.
var sources = map[string]answer{
	"memory": {cache.FromMemory, false}, "redis": {cache.FromRedis, false}, "stale": {cache.FromRedis, true}, "load": {cache.FromLoader, false},
}

// fetch reads keys through the client.
func (c *client) fetch(ctx context.Context, l conform.Line) (values map[string]string, from answer, err error) {
	came := make(chan conform.Line, 1)
	c.mu.Lock()
	c.number++
	l.ID = c.number
	c.waiting[l.ID] = came
	c.mu.Unlock()
	c.tell(l)
	limit := time.NewTimer(clientPatience)
	defer limit.Stop()
	select {
	case got := <-came:
		if got.Error != "" {
			return nil, from, errors.New(got.Error)
		}
		from, known := sources[got.From]
		if !known && l.Type == conform.LineFetch {
			c.fail(fmt.Errorf("a value is from %q: wanted redis, stale, load or memory", got.From))
		}
		return got.Values, from, nil
	case <-limit.C:
		c.fail(fmt.Errorf("no result of the fetch %d of %q for %s", l.ID, l.Keys, clientPatience))
	case <-ctx.Done():
	}
	return nil, from, errors.New("no result")
}

// count adds the statistics since the last call, by what the client has told until now.
func (c *client) count(t *tallies) {
	c.mu.Lock()
	c.number++
	id := c.number
	t.Refused, t.Unsettled = c.stats.Refused-c.told.Refused, c.stats.Unsettled-c.told.Unsettled
	c.told = c.stats
	c.mu.Unlock()
	c.tell(conform.Line{Type: conform.LineStats, ID: id})
}

// ask reads a key through the client, with the token of a write if it is not empty.
func (r *reader) ask(ctx context.Context, key int, token string) (version uint64, ok bool) {
	l := conform.Line{Type: conform.LineFetch, Keys: []string{r.name(key)}, Token: token}
	if r.kind(key) == tagged {
		l.Tags = []string{r.tag(key)}
	}
	if key/len(r.Kinds)%2 == 1 {
		l.TTL, l.Stale = expiring.Milliseconds(), (r.TTL - expiring).Milliseconds()
	}
	began := now()
	values, from, err := r.outside.fetch(ctx, l)
	if err != nil {
		r.findings.fail(ctx, err)
		return 0, false
	}
	return r.check(key, values[l.Keys[0]], r.count(from), began)
}

// tell writes a line. If the client has gone, stop has the reason.
func (c *client) tell(l conform.Line) {
	c.telling.Lock()
	defer c.telling.Unlock()
	_ = c.process.Tell(l)
}

// fail kills the client, for a reason that stop returns.
func (c *client) fail(reason error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failure == nil {
		c.failure = reason
		_ = c.process.Signal(syscall.SIGKILL) // it may have ended
	}
}

// stop ends the client, and returns why it failed.
func (c *client) stop() (err error) {
	c.end()
	c.reading.Wait()
	if c.process != nil {
		c.telling.Lock()
		c.process.DismissWith(conform.Line{Type: conform.LineClose})
		c.telling.Unlock()
		err = errors.Join(c.process.Wait(endPatience), c.failure)
	}
	c.loads.Wait()
	if c.master != nil {
		_ = c.master.Close()
	}
	if c.host.loader != nil {
		c.host.close()
	}
	return err
}
