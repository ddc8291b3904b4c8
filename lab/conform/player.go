package conform

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/unstale/unstale/lab/rig"
)

// patience is how long a client may take for anything that it has to do.
const patience = 15 * time.Second

// lookStep is how often a condition is looked at while the clients do nothing.
const lookStep = 2 * time.Millisecond

// errStuck ends a run: the client does not do what it has to do next.
var errStuck = errors.New("the client is stuck")

// A client is one process of the command that is judged.
type client struct {
	process  *rig.Process
	proxy    *proxy
	observer *observer
	ready    Line
	hasOld   bool // in this schedule it was given the old value, which may be in its memory
	did      work // in this schedule
}

// A work counts what a client did.
type work struct{ trips, loads int }

// A call is a line that a client answers: a fetch, or a question about its statistics.
type call struct {
	client   *client
	keys     []string
	unlinked bool  // it began after the UNLINK
	told     bool  // and after the message
	before   work  // what the client did before
	did      work  // and until the end
	result   *Line // nil until it has ended
}

// runs reports whether a call has no result yet.
func (r *call) runs() bool { return r.result == nil }

// A pendingLoad is a load whose client waits for its value.
type pendingLoad struct {
	client *client
	line   Line
	rows   map[string]string // when it began
}

// A player lets clients go on one step at a time. Only its goroutine uses it.
type player struct {
	world   *world
	command []string // of the clients
	clients []*client
	events  chan func() // what clients do: the player records it
	ledger  *ledger
	calls   []*call // the number of a call is its place, from 1
	held    []*trip
	loads   []*pendingLoad
	sent    []command // in this schedule, those that write
	cuts    leaseCut
	early   bool    // loads return what the database had when they began, not when they end
	moving  *player // the one with a Cluster; nil until a schedule needs it
}

// A leaseCut is what of the next request for a lease is lost with its connection.
type leaseCut int

const (
	cutReply leaseCut = iota
	cutRequest
	cutReplies // of each request before the load
	cutNothing
)

func newPlayer(w *world, command []string, l *ledger) *player {
	return &player{world: w, command: command, events: make(chan func(), 256), ledger: l}
}

// enlist starts a process of the command behind a proxy, and waits until it is ready. A client of a
// Cluster finds the nodes itself.
func (p *player) enlist() {
	c := &client{observer: newObserver(p.ledger)}
	c.proxy = newProxy(p.world.ctx, p.world.addr, func(t *trip) { p.put(func() { p.hold(c, t) }) })
	p.clients = append(p.clients, c)
	addr := c.proxy.listener.Addr().String()
	if p.world.cluster != nil {
		addr = p.world.addr
	}
	hello := Line{
		Type: LineHello, Version: DriverVersion, Redis: fmt.Sprintf("redis://%s/0", addr), Prefix: keyPrefix, Channel: channel, Source: source,
		Period: period.Milliseconds(), Lease: mapLease.Milliseconds(), TTL: valueLife.Milliseconds(), Timeout: commandTimeout.Milliseconds(), Cluster: p.world.cluster != nil,
	}
	var err error
	c.process, err = rig.StartProcess("the client", p.command, nil, hello, func(l Line) error { p.put(func() { p.hear(c, l) }); return nil })
	must(err)
	go func() {
		<-c.process.Ended()
		p.put(func() { must(errors.Join(errors.New("the client has ended"), c.process.Wait(time.Second))) })
	}()
	p.until(func() bool { return c.ready.Type != "" }, none)
	if c.ready.Version != DriverVersion {
		must(fmt.Errorf("the client speaks version %d of the driver protocol, not %d", c.ready.Version, DriverVersion))
	}
}

// dismiss ends the processes and proxies, after the context of the world. A client must end when
// its standard input does.
func (p *player) dismiss(orderly bool) (err error) {
	if p.moving != nil {
		err = errors.Join(p.moving.dismiss(orderly), p.moving.world.cluster.Close())
	}
	for _, c := range p.clients {
		if c.process != nil {
			if orderly {
				c.process.DismissWith(Line{Type: LineClose})
			}
			c.process.Dismiss()
			if ended := c.process.Wait(10 * time.Second); orderly {
				err = errors.Join(err, ended)
			}
		}
		c.proxy.stop()
	}
	p.world.beating.Wait()
	return err
}

// put hands what a client did to the player's goroutine.
func (p *player) put(happens func()) {
	select {
	case p.events <- happens:
	case <-p.world.ctx.Done():
	}
}

// absorb waits for the next event. It reports false if none came in time.
func (p *player) absorb(limit time.Duration) bool {
	select {
	case happens := <-p.events:
		happens()
		return true
	case <-time.After(limit):
		return false
	case <-p.world.ctx.Done():
		panic(stopped{context.Cause(p.world.ctx)})
	}
}

// hold keeps a trip until it is released.
func (p *player) hold(c *client, t *trip) {
	t.client = c
	c.observer.observe(t)
	p.held = append(p.held, t)
	if !t.answered() {
		c.did.trips++
	}
}

// hear records a line of a client.
func (p *player) hear(c *client, l Line) {
	switch l.Type {
	case LineReady:
		c.ready = l
	case LineLoad:
		c.observer.loadBegan(l.Keys)
		c.did.loads++
		p.cuts = cutNothing
		p.loads = append(p.loads, &pendingLoad{c, l, p.world.rowsOf(l.Keys)})
	case LineResult, LineStats:
		if l.ID < 1 || l.ID > len(p.calls) || !p.calls[l.ID-1].runs() || p.calls[l.ID-1].client != c {
			must(fmt.Errorf("the client has sent a result of %d, which is no fetch under way", l.ID))
		}
		r := p.calls[l.ID-1]
		r.result, r.did = &l, work{c.did.trips - r.before.trips, c.did.loads - r.before.loads}
	default:
		must(fmt.Errorf("the client has sent a line of the unknown type %q", l.Type))
	}
}

// until absorbs events until done, and lets go on what may pass.
func (p *player) until(done func() bool, pass func(*trip) bool) {
	if !p.within(patience, done, pass) {
		must(errStuck)
	}
}

// within is like until, with a limit. It reports whether it is done.
func (p *player) within(limit time.Duration, done func() bool, pass func(*trip) bool) bool {
	for end := time.Now().Add(limit); !done(); {
		if i := slices.IndexFunc(p.held, pass); i >= 0 {
			p.release(p.held[i], !p.lost(p.held[i]))
		} else if p.absorb(lookStep); time.Now().After(end) {
			return done()
		}
	}
	return true
}

// lost reports whether the connection of a trip is to be cut, which happens once for each event.
func (p *player) lost(t *trip) bool {
	if t.kind != leases || p.cuts == cutNothing || (p.cuts == cutRequest) == t.answered() {
		return false
	}
	if p.cuts != cutReplies {
		p.cuts = cutNothing
	}
	return true
}

// all lets every trip go on, and none holds every one.
func all(*trip) bool  { return true }
func none(*trip) bool { return false }

// release lets a held trip go on, or cuts its connection.
func (p *player) release(t *trip, on bool) {
	p.held = slices.DeleteFunc(p.held, func(other *trip) bool { return other == t })
	switch {
	case !on:
	case !t.answered():
		for _, c := range t.commands {
			if c.script != "" || c.changes() {
				p.sent = append(p.sent, c)
			}
		}
	default:
		t.client.hasOld = t.client.hasOld || t.storesOld() || strings.Contains(fmt.Sprint(t.replies), oldMark)
	}
	t.permit <- on
}

// answer ends a load with what the database has, or with an error.
func (p *player) answer(l *pendingLoad, failure string) {
	p.loads = slices.DeleteFunc(p.loads, func(other *pendingLoad) bool { return other == l })
	out := Line{Type: LineLoaded, ID: l.line.ID, Error: failure}
	if failure == "" {
		if out.Values = l.rows; !p.early {
			out.Values = p.world.rowsOf(l.line.Keys)
		}
	}
	must(l.client.process.Tell(out))
}

// call sends a line that a client answers.
func (p *player) call(c *client, l Line) *call {
	r := &call{client: c, keys: l.Keys, before: c.did}
	p.calls = append(p.calls, r)
	l.ID = len(p.calls)
	must(c.process.Tell(l))
	return r
}

// complete lets everything go on until calls have ended. Loads get what the database has.
func (p *player) complete(calls ...*call) {
	missing := func() bool { return slices.ContainsFunc(calls, (*call).runs) }
	for missing() {
		p.until(func() bool { return !missing() || len(p.loads) > 0 }, all)
		if missing() {
			p.answer(p.loads[0], "")
		}
	}
}

// stats returns the statistics of a client.
func (p *player) stats(c *client, pass func(*trip) bool) *Line {
	r := p.call(c, Line{Type: LineStats})
	p.until(func() bool { return !r.runs() }, pass)
	return r.result
}

// opened waits until the cache of a client is open, or closed. It reports whether that is in time.
// It lets everything go on.
func (p *player) opened(c *client, open bool) bool {
	return p.within(patience, func() bool { return p.stats(c, all).Open == open }, all)
}

// memories are the clients with an in-process cache, once it is open.
func (p *player) memories() (open []*client) {
	for _, c := range p.clients {
		switch {
		case !c.ready.L1:
		case p.opened(c, true):
			open = append(open, c)
		default:
			p.ledger.breach("opens", "the cache is not open, although heartbeats arrive")
		}
	}
	return open
}
