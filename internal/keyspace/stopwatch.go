package keyspace

import (
	"context"
	"net"
	"sync/atomic"
	"time"
)

// A stopwatch measures the server's last response time on a connection, from the request to the
// first byte of the answer. It includes the network, but not reading and parsing a long answer. It
// is for one connection that one goroutine uses at a time.
type stopwatch struct {
	asked  atomic.Int64 // nanoseconds since start, of the last write
	took   atomic.Int64 // nanoseconds, of the last answer
	remote atomic.Value // string: whom the last dial reached
	conn   atomic.Pointer[timedConn]
}

var stopwatchStart = time.Now()

// last returns the time of the last answer.
func (s *stopwatch) last() time.Duration { return time.Duration(s.took.Load()) }

// reached returns the address that the last dial led to.
func (s *stopwatch) reached() string {
	address, _ := s.remote.Load().(string)
	return address
}

type dialFunc = func(ctx context.Context, network, addr string) (net.Conn, error)

// dialer times the connections that dial makes.
func (s *stopwatch) dialer(dial dialFunc) dialFunc {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		s.remote.Store(conn.RemoteAddr().String())
		timed := &timedConn{Conn: conn, watch: s}
		s.conn.Store(timed)
		return timed, nil
	}
}

// interrupt makes the last connection fail immediately, which the client library does only for a
// deadline.
func (s *stopwatch) interrupt() {
	if c := s.conn.Load(); c != nil {
		_ = c.Close() // a reading goroutine gets the error
	}
}

type timedConn struct {
	net.Conn
	watch   *stopwatch
	waiting bool // for the first byte of an answer
}

func (c *timedConn) Write(b []byte) (int, error) {
	c.waiting = true
	c.watch.asked.Store(int64(time.Since(stopwatchStart)))
	return c.Conn.Write(b)
}

func (c *timedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.waiting && n > 0 {
		c.waiting = false
		c.watch.took.Store(int64(time.Since(stopwatchStart)) - c.watch.asked.Load())
	}
	return n, err
}
