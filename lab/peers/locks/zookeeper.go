package locks

import (
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	library "github.com/go-zookeeper/zk"

	"github.com/unstale/unstale/lock"
	"github.com/unstale/unstale/lock/zk"
)

// ensemble is how many ZooKeeper servers there are.
const ensemble = 3

// session outlives a lock, as do the sessions of package lock.
const session = ttl * 3 / 2

// oursInZooKeeper returns package lock with ZooKeeper.
func oursInZooKeeper(s *site) (process, error) {
	dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		return &packets{Conn: conn, n: &s.requests}, err
	}
	backend := zk.Backend{Servers: s.zookeeper.Addrs(), Root: "/ours", Dial: dial}
	l, err := lock.New(lock.Config{Backend: backend, TTL: ttl, Timeout: patience, Logger: slog.New(slog.DiscardHandler)})
	return &ourProcess{l}, err
}

// zkProcess is a process with the lock of go-zookeeper. Its calls take no context: to end one, it
// closes the connection.
type zkProcess struct {
	conn   *library.Conn
	events <-chan library.Event
}

func openZkLock(s *site) (process, error) {
	dial := func(network, addr string, timeout time.Duration) (net.Conn, error) {
		conn, err := net.DialTimeout(network, addr, timeout)
		return &packets{Conn: conn, n: &s.requests}, err
	}
	conn, events, err := library.Connect(s.zookeeper.Addrs(), session, library.WithDialer(dial), library.WithLogger(silent{}))
	return &zkProcess{conn, events}, err
}

func (p *zkProcess) Lock(ctx context.Context, name string) (func(context.Context) error, error) {
	defer context.AfterFunc(ctx, p.conn.Close)()
	l := library.NewLock(p.conn, "/theirs/"+name, library.WorldACL(library.PermAll))
	if err := l.Lock(); err != nil {
		return nil, errors.Join(context.Cause(ctx), err)
	}
	return func(context.Context) error { return l.Unlock() }, nil
}

func (p *zkProcess) Close() error {
	p.conn.Close()
	for range p.events { // until it is done
		continue
	}
	return nil
}

type silent struct{}

func (silent) Printf(string, ...any) {}

// packets is a connection to ZooKeeper that counts requests: go-zookeeper writes each immediately.
// The first one is the handshake.
type packets struct {
	net.Conn
	n       *atomic.Int64
	greeted atomic.Bool
}

func (c *packets) Write(b []byte) (int, error) {
	const ping = 11
	if c.greeted.Swap(true) && len(b) >= 12 && binary.BigEndian.Uint32(b[8:]) != ping {
		c.n.Add(1)
	}
	return c.Conn.Write(b)
}
