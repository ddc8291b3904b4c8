package conform

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// A trip is one round trip of a client: the commands of a pipeline and their replies. It is held
// twice: before Redis gets the commands, and before the client gets the replies.
type trip struct {
	client   *client
	commands []command
	replies  []any // nil before Redis has answered
	kind     tripKind
	permit   chan bool // false: close the connection instead
}

// A tripKind is what a trip does for the schedule.
type tripKind int

const (
	reads tripKind = iota
	leases
	fills
)

// sort finds the kind of a trip. It reports false if the trip need not be held.
func (t *trip) sort() (held bool) {
	for _, c := range t.commands {
		held = held || c.concerns()
		switch {
		case c.script == "fill", c.script == "" && c.changes():
			t.kind = fills
		case c.script == "lease":
			t.kind = max(t.kind, leases)
		}
	}
	return held
}

// answered reports whether the trip is held with its replies.
func (t *trip) answered() bool { return t.replies != nil }

// stores reports whether Redis has run the command that stores a value.
func (t *trip) stores() bool {
	return t.kind == fills && t.answered() && !slices.ContainsFunc(t.replies, func(reply any) bool { _, refused := reply.(refusal); return refused })
}

// storesOld reports whether Redis has stored the old value for a trip.
func (t *trip) storesOld() bool {
	for i, c := range t.commands {
		stored := t.replies[i] == int64(1) || t.replies[i] == "OK"
		if stored && slices.ContainsFunc(c.args, func(arg string) bool { return strings.Contains(arg, oldMark) }) {
			return true
		}
	}
	return false
}

// A proxy is between a client and Redis. Trips that touch no key of the client, such as HELLO and
// PING, and subscriptions pass without being held.
type proxy struct {
	upstream string
	listener net.Listener
	hold     func(*trip) // hands a trip to the schedule
	life     context.Context
	running  sync.WaitGroup
	begun    atomic.Int64 // how many subscriptions have begun so far

	mu    sync.Mutex
	conns map[net.Conn]use
}

// A use is what a connection does now.
type use int

const (
	idle use = iota
	busy     // it carries a trip
	subscribed
	ended
)

func newProxy(ctx context.Context, upstream string, hold func(*trip)) *proxy {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	must(err)
	p := &proxy{upstream: upstream, listener: listener, hold: hold, life: ctx, conns: map[net.Conn]use{}}
	p.running.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			p.running.Go(func() { p.serve(conn) })
		}
	})
	return p
}

// stop ends all connections and waits for their goroutines. The context must have ended.
func (p *proxy) stop() {
	_ = p.listener.Close()
	p.cut(idle, busy, subscribed)
	p.running.Wait()
}

// cut closes the connections of some uses.
func (p *proxy) cut(uses ...use) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for conn, now := range p.conns {
		if slices.Contains(uses, now) {
			_ = conn.Close()
		}
	}
}

// mark records the use of a connection.
func (p *proxy) mark(conn net.Conn, now use) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns[conn] = now
}

// serve carries a connection until one side ends it.
func (p *proxy) serve(conn net.Conn) {
	defer conn.Close()
	up, err := net.Dial("tcp", p.upstream)
	if err != nil {
		return
	}
	defer up.Close()
	p.mark(conn, idle)
	defer p.mark(conn, ended)
	_ = p.relay(conn, up) // a client may leave at any time
}

var (
	errCut     = errors.New("the schedule cuts the connection")
	subscribes = []string{"SUBSCRIBE", "SSUBSCRIBE", "PSUBSCRIBE"}
)

// relay carries trips until the connection ends.
func (p *proxy) relay(conn, up net.Conn) error {
	requests, answers := newWire(conn), newWire(up)
	for {
		t := &trip{permit: make(chan bool, 1)}
		for len(t.commands) == 0 || requests.in.Buffered() > 0 { // all that the client has sent at once
			c, err := requests.command()
			if err != nil {
				return err
			}
			t.commands = append(t.commands, c)
		}
		if slices.ContainsFunc(t.commands, func(c command) bool { return slices.Contains(subscribes, c.name) }) {
			return p.relaySubscription(conn, up, requests)
		}
		held := t.sort()
		p.mark(conn, busy)
		if held && !p.permits(t) {
			return errCut
		}
		if _, err := up.Write(requests.take()); err != nil {
			return err
		}
		var replies []any
		for range t.commands {
			reply, err := answers.value()
			if err != nil {
				return err
			}
			replies = append(replies, reply)
		}
		t.replies = replies
		if held && !p.permits(t) {
			return errCut
		}
		p.mark(conn, idle)
		if _, err := conn.Write(answers.take()); err != nil {
			return err
		}
	}
}

// permits hands a trip to the schedule, and waits for its permit.
func (p *proxy) permits(t *trip) bool {
	p.hold(t)
	select {
	case on := <-t.permit:
		return on
	case <-p.life.Done():
		return false
	}
}

// relaySubscription copies bytes in both directions until one side ends.
func (p *proxy) relaySubscription(conn, up net.Conn, requests *wire) error {
	if _, err := up.Write(requests.take()); err != nil {
		return err
	}
	p.mark(conn, subscribed)
	p.begun.Add(1)
	p.running.Go(func() {
		_, _ = io.Copy(conn, up)
		_ = conn.Close()
	})
	_, err := io.Copy(up, requests.in)
	return err
}
