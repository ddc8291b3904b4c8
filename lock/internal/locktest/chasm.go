package locktest

import (
	"context"
	"net"
	"sync/atomic"
	"syscall"
)

// A Chasm loses what is sent to a server while it is open, and makes no new connection.
type Chasm struct{ Open atomic.Bool }

// Dial fails immediately while the Chasm is open, for clients that go on dialing when they are
// closed.
func (c *Chasm) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if c.Open.Load() {
		return nil, syscall.ETIMEDOUT
	}
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	return &swallowing{conn, c}, err
}

// A swallowing connection loses all requests while the Chasm is open.
type swallowing struct {
	net.Conn
	chasm *Chasm
}

func (s *swallowing) Write(p []byte) (int, error) {
	if s.chasm.Open.Load() {
		return len(p), nil
	}
	return s.Conn.Write(p)
}
