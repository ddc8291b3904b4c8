package redisclient

import (
	"net"
	"time"
)

// A FailedConn is the connection of a dial that failed: each use fails with the reason. If a Dialer
// returned the error itself, go-redis would count failed dials and, once there are as many as its
// pool is large, dial only once per second, which would delay recovery.
type FailedConn struct{ Err error }

func (c FailedConn) Read([]byte) (int, error)         { return 0, c.Err }
func (c FailedConn) Write([]byte) (int, error)        { return 0, c.Err }
func (c FailedConn) Close() error                     { return nil }
func (c FailedConn) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (c FailedConn) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (c FailedConn) SetDeadline(time.Time) error      { return nil }
func (c FailedConn) SetReadDeadline(time.Time) error  { return nil }
func (c FailedConn) SetWriteDeadline(time.Time) error { return nil }
