package verify

import (
	"bytes"
	"context"
	"net"
)

// deafDialer connects and rewrites messages so that they name unused keys. The message numbers
// stay, so the reader sees no gap.
func deafDialer(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	return deafConn{conn}, err
}

type deafConn struct{ net.Conn }

// Read renames keys.
func (c deafConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	for _, name := range []string{`"verify:`, `"stamp:verify`} {
		copy(p, bytes.ReplaceAll(p[:n], []byte(name), append([]byte(`"x`), name[2:]...)))
	}
	return n, err
}
