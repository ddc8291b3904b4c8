package redisurl

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/redisclient"
)

const (
	redialStep = 200 * time.Millisecond
	redialMost = 5 * time.Second
)

// A redialer connects, and after failures waits before it tries a server again. It is safe for
// concurrent use.
type redialer struct {
	options *redis.UniversalOptions                                           // for timeout and TLS
	dial    func(ctx context.Context, network, addr string) (net.Conn, error) // or nil

	mu     sync.Mutex
	failed map[string]failure // by address
}

// A failure records that the last dial did not reach a server.
type failure struct {
	times int // in a row
	until time.Time
	err   error
}

// connect implements the Dialer of a client. If it cannot connect, it returns a FailedConn.
func (r *redialer) connect(ctx context.Context, network, addr string) (net.Conn, error) {
	r.mu.Lock()
	before, failed := r.failed[addr]
	r.mu.Unlock()
	if failed && time.Now().Before(before.until) {
		return redisclient.FailedConn{Err: before.err}, nil
	}
	conn, err := r.dialOnce(ctx, network, addr)
	if err == nil {
		r.mu.Lock()
		delete(r.failed, addr)
		r.mu.Unlock()
		return conn, nil
	}
	if !errors.Is(ctx.Err(), context.Canceled) { // a caller that leaves says nothing about the server
		r.note(addr, before.times, err)
	}
	return redisclient.FailedConn{Err: err}, nil
}

// note records a failure. Dials that fail together count once.
func (r *redialer) note(addr string, before int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failed[addr].times == before {
		r.failed[addr] = failure{before + 1, time.Now().Add(redialDelay(before + 1)), err}
	}
}

// redialDelay returns how long no connection is tried after n failures in a row.
func redialDelay(n int) time.Duration {
	return min(time.Duration(n)*redialStep, redialMost)
}

func (r *redialer) dialOnce(ctx context.Context, network, addr string) (net.Conn, error) {
	if r.dial != nil {
		return r.dial(ctx, network, addr)
	}
	ctx, cancel := context.WithTimeout(ctx, r.options.DialTimeout) // TLS' handshake included
	defer cancel()
	if r.options.TLSConfig != nil {
		return (&tls.Dialer{Config: r.options.TLSConfig}).DialContext(ctx, network, addr)
	}
	return (&net.Dialer{}).DialContext(ctx, network, addr)
}
