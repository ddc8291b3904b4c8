package conform

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
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

	mu          sync.Mutex
	commands    map[net.Conn]bool // connections that have a trip under way, or not
	subscribers map[net.Conn]bool
	subscribed  int // how many subscriptions have begun so far
}

func newProxy(ctx context.Context, upstream string, c *client, hold func(*trip)) (*proxy, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{client: c, upstream: upstream, listener: listener, hold: hold, life: ctx, commands: map[net.Conn]bool{}, subscribers: map[net.Conn]bool{}}
	p.running.Go(p.acceptAll)
	return p, nil
}

// stop ends all connections and waits for their goroutines. The context must have ended.
func (p *proxy) stop() {
	_ = p.listener.Close()
	p.cut(p.commands)
	p.cut(p.subscribers)
	p.running.Wait()
}

// cut closes the connections of a set that carry no trip.
func (p *proxy) cut(set map[net.Conn]bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for conn, busy := range set {
		if !busy || p.life.Err() != nil {
			_ = conn.Close()
		}
	}
}

// subscriptions returns how many have begun so far.
func (p *proxy) subscriptions() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.subscribed
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
			p.track(conn, p.commands, false)
			defer p.forget(conn)
			_ = p.relay(conn, up) // a client may leave at any time
		})
	}
}

func (p *proxy) track(conn net.Conn, set map[net.Conn]bool, busy bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	set[conn] = busy
}

func (p *proxy) forget(conn net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.commands, conn)
	delete(p.subscribers, conn)
}

var errCut = errors.New("the schedule cuts the connection")

// relay carries trips until the connection ends.
func (p *proxy) relay(conn, up net.Conn) error {
	in, answers := bufio.NewReaderSize(conn, 1<<16), bufio.NewReaderSize(up, 1<<16)
	for {
		commands, err := readTrip(in)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(commands, func(c command) bool { return c.name == "SUBSCRIBE" || c.name == "SSUBSCRIBE" || c.name == "PSUBSCRIBE" }) {
			return p.relaySubscription(conn, up, in, commands)
		}
		t := &trip{client: p.client, commands: commands, permit: make(chan bool, 1)}
		if !t.sort() {
			t = nil
		}
		p.track(conn, p.commands, true)
		if err := p.held(t); err != nil {
			return err
		}
		var raw bytes.Buffer
		for _, c := range commands {
			if _, err := up.Write(c.raw); err != nil {
				return err
			}
		}
		replies := make([]any, len(commands))
		for i := range replies {
			if replies[i], err = readReply(answers, &raw); err != nil {
				return err
			}
		}
		if t != nil {
			t.replies = replies
		}
		if err := p.held(t); err != nil {
			return err
		}
		p.track(conn, p.commands, false)
		if _, err := conn.Write(raw.Bytes()); err != nil {
			return err
		}
	}
}

// held hands a trip to the schedule, and waits for its permit.
func (p *proxy) held(t *trip) error {
	if t == nil {
		return nil
	}
	p.hold(t)
	select {
	case on := <-t.permit:
		if on {
			return nil
		}
	case <-p.life.Done():
	}
	return errCut
}

// readTrip reads a command, and all that the client has sent with it.
func readTrip(in *bufio.Reader) (commands []command, err error) {
	for first := true; first || in.Buffered() > 0; first = false {
		c, err := readCommand(in)
		if err != nil {
			return nil, err
		}
		commands = append(commands, c)
	}
	return commands, nil
}

// relaySubscription copies bytes in both directions until one side ends.
func (p *proxy) relaySubscription(conn, up net.Conn, in io.Reader, commands []command) error {
	p.forget(conn)
	p.track(conn, p.subscribers, false)
	for _, c := range commands {
		if _, err := up.Write(c.raw); err != nil {
			return err
		}
	}
	p.mu.Lock()
	p.subscribed++
	p.mu.Unlock()
	p.running.Go(func() {
		_, _ = io.Copy(conn, up)
		_ = conn.Close()
	})
	_, err := io.Copy(up, in)
	_ = up.Close()
	return err
}
