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

// An event is what a client does: it sends a line, or its proxy holds a trip. Without both, its
// process has ended.
type event struct {
	client *client
	line   *Line
	trip   *trip
}

// A read is one fetch of a client.
type read struct {
	client   *client
	keys     []string
	unlinked bool  // it began after the UNLINK
	told     bool  // and after the message
	before   work  // what the client did before
	did      work  // and until the end
	result   *Line // nil until it has ended
}

// runs reports whether a read has no result yet.
func (r *read) runs() bool { return r.result == nil }

// A pendingLoad is a load whose client waits for its value.
type pendingLoad struct {
	client *client
	line   *Line
	rows   map[string]string // when it began
}

// A player lets clients go on one step at a time. Only its goroutine uses it.
type player struct {
	ctx      context.Context
	world    *world
	clients  []*client
	events   chan event
	ledger   *ledger
	number   int           // of the latest fetch or question
	reads    map[int]*read // by their number
	answered map[int]*Line // questions, likewise
	held     []*trip
	loads    []pendingLoad
	sent     []command // in this schedule, those that write
	cuts     leaseCut
	early    bool // loads return what the database had when they began, not when they end

	command []string        // of the clients
	working context.Context // of what a run has started
	moving  *player         // the one with a Cluster; nil until a schedule needs it
}

func newPlayer(ctx context.Context, w *world, l *ledger) *player {
	return &player{ctx: ctx, world: w, events: make(chan event, 256), ledger: l, reads: map[int]*read{}, answered: map[int]*Line{}}
}

// A leaseCut is what of the next request for a lease is lost with its connection.
type leaseCut int

const (
	cutReply leaseCut = iota
	cutRequest
	cutReplies // of each request before the load
	cutNothing
)

// enlist starts a process of the command behind a proxy, and waits until it is ready.
func (p *player) enlist(command []string, stop context.Context) error {
	c := &client{observer: newObserver(p.ledger, mapLease)}
	var err error
	if c.proxy, err = newProxy(stop, p.world.addr, c, func(t *trip) { p.put(stop, event{client: c, trip: t}) }); err != nil {
		return err
	}
	addr := c.proxy.listener.Addr().String()
	if p.world.cluster != nil {
		addr = p.world.addr
	}
	hello := Line{
		Type: LineHello, Version: DriverVersion, Redis: fmt.Sprintf("redis://%s/%d", addr, p.world.number), Prefix: keyPrefix, Channel: p.world.channel, Source: source,
		Period: period.Milliseconds(), Lease: mapLease.Milliseconds(), TTL: valueLife.Milliseconds(), Timeout: commandTimeout.Milliseconds(), Cluster: p.world.cluster != nil,
	}
	c.process, err = rig.StartProcess("the client", command, nil, hello, func(l Line) error { p.put(stop, event{client: c, line: &l}); return nil })
	if err != nil {
		return errors.Join(err, c.proxy.listener.Close())
	}
	go func() {
		<-c.process.Ended()
		p.put(stop, event{client: c})
	}()
	p.clients = append(p.clients, c)
	if err := p.until(func() bool { return c.ready.Type != "" }, nil); err != nil {
		return err
	}
	if c.ready.Version != DriverVersion {
		return fmt.Errorf("the client speaks version %d of the driver protocol, not %d", c.ready.Version, DriverVersion)
	}
	return nil
}

func (p *player) put(stop context.Context, e event) {
	select {
	case p.events <- e:
	case <-stop.Done():
	}
}

// absorb waits for the next event and keeps it. It reports false if none came in time.
func (p *player) absorb(limit time.Duration) (bool, error) {
	select {
	case e := <-p.events:
		return true, p.keep(e)
	case <-time.After(limit):
		return false, nil
	case <-p.ctx.Done():
		return false, context.Cause(p.ctx)
	}
}

// keep records an event.
func (p *player) keep(e event) error {
	c := e.client
	if t := e.trip; t != nil {
		c.observer.observe(t)
		p.held = append(p.held, t)
		if !t.answered() {
			c.did.trips++
		}
		return nil
	}
	if e.line == nil {
		return errors.Join(errors.New("the client has ended"), c.process.Wait(time.Second))
	}
	switch l := e.line; l.Type {
	case LineReady:
		c.ready = *l
	case LineLoad:
		c.observer.loadBegan(l.Keys)
		c.did.loads++
		p.cuts = cutNothing
		p.loads = append(p.loads, pendingLoad{c, l, p.world.rowsOf(l.Keys)})
	case LineResult:
		r := p.reads[l.ID]
		if r != nil && r.runs() && r.client == c {
			r.result, r.did = l, work{c.did.trips - r.before.trips, c.did.loads - r.before.loads}
			return nil
		}
		return fmt.Errorf("the client has sent a result of %d, which is no fetch under way", l.ID)
	case LineStats:
		p.answered[l.ID] = l
	default:
		return fmt.Errorf("the client has sent a line of the unknown type %q", l.Type)
	}
	return nil
}

// until absorbs events until done, and lets go on what may pass: nothing if pass is nil.
func (p *player) until(done func() bool, pass func(*trip) bool) error {
	ok, err := p.within(patience, done, pass)
	if err == nil && !ok {
		err = errStuck
	}
	return err
}

// within is like until, with a limit. It reports whether it is done.
func (p *player) within(limit time.Duration, done func() bool, pass func(*trip) bool) (bool, error) {
	for end := time.Now().Add(limit); !done(); {
		if pass != nil {
			if i := slices.IndexFunc(p.held, pass); i >= 0 {
				p.release(p.held[i], !p.lost(p.held[i]))
				continue
			}
		}
		if _, err := p.absorb(time.Until(end)); err != nil {
			return false, err
		}
		if time.Now().After(end) {
			return done(), nil
		}
	}
	return true, nil
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

// all lets every trip go on.
func all(*trip) bool { return true }

// unlessFill lets go on what stores nothing.
func unlessFill(t *trip) bool { return t.kind != fills }

// stores reports whether Redis has run the command that stores a value.
func (t *trip) stores() bool {
	return t.kind == fills && t.answered() && !slices.ContainsFunc(t.replies, func(reply any) bool { _, refused := reply.(refusal); return refused })
}

// accepted reports whether Redis has stored the old value for a trip.
func (t *trip) accepted() bool {
	for i, c := range t.commands {
		stored := t.replies[i] == int64(1) || t.replies[i] == "OK"
		if stored && slices.ContainsFunc(c.args, func(arg string) bool { return strings.Contains(arg, oldMark) }) {
			return true
		}
	}
	return false
}

// release lets a held trip go on, or cuts its connection.
func (p *player) release(t *trip, on bool) {
	p.held = slices.DeleteFunc(p.held, func(other *trip) bool { return other == t })
	switch {
	case !on:
	case !t.answered():
		for _, c := range t.commands {
			if c.script != "" || t.kind == fills && !slices.Contains(readers, c.name) {
				p.sent = append(p.sent, c)
			}
		}
	case t.accepted() || slices.ContainsFunc(t.replies, func(reply any) bool { return mentions(reply, oldMark) }):
		t.client.hasOld = true
	}
	t.permit <- on
}

// answer ends a load with what the database has, or with an error.
func (p *player) answer(l pendingLoad, failure string) error {
	p.loads = slices.DeleteFunc(p.loads, func(other pendingLoad) bool { return other.line == l.line })
	out := Line{Type: LineLoaded, ID: l.line.ID, Error: failure}
	if failure == "" {
		if out.Values = l.rows; !p.early {
			out.Values = p.world.rowsOf(l.line.Keys)
		}
	}
	return l.client.process.Tell(out)
}

// ask sends a fetch of the key of a scene, and of others.
func (p *player) ask(c *client, s *scene, others ...string) (*read, error) {
	p.number++
	l := Line{Type: LineFetch, ID: p.number, Keys: append([]string{s.key}, others...)}
	r := &read{client: c, keys: l.Keys, unlinked: s.unlinked, told: s.told, before: c.did}
	p.reads[p.number] = r
	if len(others) > 0 {
		l.Type = LineMany
	}
	if s.tag != "" {
		l.Tags = []string{s.tag}
	}
	for _, key := range l.Keys {
		c.observer.tags[key] = l.Tags
	}
	return r, c.process.Tell(l)
}

// read reads the key of a scene, and lets everything go on until it has ended.
func (p *player) read(c *client, s *scene) (*read, error) {
	r, err := p.ask(c, s)
	if err == nil {
		err = p.complete(r)
	}
	return r, err
}

// complete lets everything go on until reads have ended. Loads get what the database has.
func (p *player) complete(reads ...*read) error {
	for {
		missing := func() bool { return slices.ContainsFunc(reads, (*read).runs) }
		if err := p.until(func() bool { return !missing() || len(p.loads) > 0 }, all); err != nil {
			return err
		}
		if !missing() {
			return nil
		}
		if err := p.answer(p.loads[0], ""); err != nil {
			return err
		}
	}
}

// question asks a client for its statistics, which it sends when it has applied so many names.
func (p *player) question(c *client, evicted int64) (answered func() *Line, err error) {
	p.number++
	id := p.number
	return func() *Line { return p.answered[id] }, c.process.Tell(Line{Type: LineStats, ID: id, Evicted: evicted})
}

// stats returns the statistics of a client.
func (p *player) stats(c *client, pass func(*trip) bool) (*Line, error) {
	answered, err := p.question(c, 0)
	if err == nil {
		err = p.until(func() bool { return answered() != nil }, pass)
	}
	return answered(), err
}

// opened waits until the cache of a client is open, or closed. It reports whether that is in time.
// It lets everything go on.
func (p *player) opened(c *client, open bool) (bool, error) {
	for end := time.Now().Add(patience); time.Now().Before(end); {
		l, err := p.stats(c, all)
		if err != nil || l.Open == open {
			return err == nil, err
		}
		if _, err := p.absorb(period / 10); err != nil {
			return false, err
		}
	}
	return false, nil
}

// mentions reports whether a reply contains a text.
func mentions(reply any, text string) bool {
	switch reply := reply.(type) {
	case string:
		return strings.Contains(reply, text)
	case []any:
		return slices.ContainsFunc(reply, func(part any) bool { return mentions(part, text) })
	}
	return false
}
