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

// dialer connects within a time: with dial if it is given, which then handles TLS, else with TLS
// unless config is nil.
//
// A dial that fails returns a connection whose every use fails with the reason. Otherwise the
// client library would count failed dials and, once there are as many as its pool is large, retry
// only once per second, which would delay recovery. The caller decides how often to retry.
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
