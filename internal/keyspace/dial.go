package keyspace

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"time"
)

// dialer connects within a time: by dial if it is given, which then sees to TLS itself, else with TLS unless config is
// nil.
//
// A dial that fails gives a connection whose every use fails with the reason. The client library would otherwise count
// failed dials and, once they are as many as its pool is large, try only once a second, so that a recovery would show
// that late. How often to try is the caller's business.
func dialer(timeout time.Duration, dial dialFunc, config *tls.Config) dialFunc {
	plain := &net.Dialer{Timeout: timeout}
	switch {
	case dial != nil:
	case config != nil:
		dial = (&tls.Dialer{NetDialer: plain, Config: config}).DialContext
	default:
		dial = plain.DialContext
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, timeout) // TLS' handshake included
		defer cancel()
		conn, err := dial(ctx, network, addr)
		if config != nil && (errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET)) {
			// Not wrapped: the client library would return the wrapped error alone.
			err = fmt.Errorf("%v in the TLS handshake; a server at maxclients hangs up there: raise maxclients, or end clients that CLIENT LIST shows", err)
		}
		if err != nil {
			return failedConn{err}, nil
		}
		return explain(conn), nil
	}
}

// A failedConn is the connection of a dial that failed.
type failedConn struct{ err error }

func (s failedConn) Read([]byte) (int, error)         { return 0, s.err }
func (s failedConn) Write([]byte) (int, error)        { return 0, s.err }
func (s failedConn) Close() error                     { return nil }
func (s failedConn) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (s failedConn) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (s failedConn) SetDeadline(time.Time) error      { return nil }
func (s failedConn) SetReadDeadline(time.Time) error  { return nil }
func (s failedConn) SetWriteDeadline(time.Time) error { return nil }
