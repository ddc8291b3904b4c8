package conform

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
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

// answered reports whether the trip is held with its replies.
func (t *trip) answered() bool { return t.replies != nil }

// A proxy is between a client and Redis. Trips that touch no key of the client, such as HELLO and
// PING, and subscriptions pass without being held.
type proxy struct {
	client   *client
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
)

func newProxy(ctx context.Context, upstream string, c *client, hold func(*trip)) (*proxy, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{client: c, upstream: upstream, listener: listener, hold: hold, life: ctx, conns: map[net.Conn]use{}}
	p.running.Go(p.acceptAll)
	return p, nil
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

func (p *proxy) acceptAll() {
	for {
		conn, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.running.Go(func() {
			defer conn.Close()
			up, err := net.Dial("tcp", p.upstream)
			if err != nil {
				return
			}
			defer up.Close()
			p.mark(conn, idle)
			defer p.forget(conn)
			_ = p.relay(conn, up) // a client may leave at any time
		})
	}
}

// mark records the use of a connection.
func (p *proxy) mark(conn net.Conn, now use) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns[conn] = now
}

func (p *proxy) forget(conn net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, conn)
}

// relay carries trips until the connection ends.
func (p *proxy) relay(conn, up net.Conn) error {
	requests, answers := newWire(conn), newWire(up)
	for {
		t := &trip{client: p.client, permit: make(chan bool, 1)}
		for len(t.commands) == 0 || requests.in.Buffered() > 0 { // all that the client has sent at once
			c, err := requests.command()
			if err != nil {
				return err
			}
			t.commands = append(t.commands, c)
		}
		if slices.ContainsFunc(t.commands, func(c command) bool { return slices.Contains(subscribes, c.name) }) {
			return p.relaySubscription(conn, up, requests.in, t.commands)
		}
		held := t.sort()
		p.mark(conn, busy)
		if held && !p.permits(t) {
			return errCut
		}
		if err := send(up, t.commands); err != nil {
			return err
		}
		answers.raw = nil
		replies := make([]any, len(t.commands))
		for i := range replies {
			var err error
			if replies[i], err = answers.reply(); err != nil {
				return err
			}
		}
		t.replies = replies
		if held && !p.permits(t) {
			return errCut
		}
		p.mark(conn, idle)
		if _, err := conn.Write(answers.raw); err != nil {
			return err
		}
	}
}

var (
	errCut     = errors.New("the schedule cuts the connection")
	subscribes = []string{"SUBSCRIBE", "SSUBSCRIBE", "PSUBSCRIBE"}
)

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

func send(up net.Conn, commands []command) error {
	for _, c := range commands {
		if _, err := up.Write(c.raw); err != nil {
			return err
		}
	}
	return nil
}

// relaySubscription copies bytes in both directions until one side ends.
func (p *proxy) relaySubscription(conn, up net.Conn, in io.Reader, commands []command) error {
	if err := send(up, commands); err != nil {
		return err
	}
	p.mark(conn, subscribed)
	p.begun.Add(1)
	p.running.Go(func() {
		_, _ = io.Copy(conn, up)
		_ = conn.Close()
	})
	_, err := io.Copy(up, in)
	_ = up.Close()
	return err
}
