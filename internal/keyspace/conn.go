package keyspace

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/unstale/unstale/internal/credentials"
	"github.com/unstale/unstale/internal/redisclient"
)

const (
	latePatience = 5 * time.Second // with an answer that is late
	// lateLife is how long what the server said explains timeouts, beyond what a question and a
	// command may take. It exceeds the time between two attempts of a caller that waits for the end
	// of an outage.
	lateLife = 2 * time.Second
)

// A lateAnswer finds out why a server does not answer in time. A server that loads a large file, or
// runs a long script, reports that only when it gets to it, which may be too late for a command:
// the caller sees a timeout. So after a timeout another connection with a longer limit asks as
// well. Such a server may answer one command in time and not the next one. Its report explains
// later timeouts too, until it answers well or the connection fails. In a Cluster there is no such
// connection: a timeout there comes from one master.
type lateAnswer struct {
	connect func() redis.UniversalClient // nil: no second connection

	mu     sync.Mutex
	found  *Outage // what the server last said, nil if nothing
	said   time.Time
	life   time.Duration // of found
	cancel func()        // of the question under way, nil if there is none
	closed bool
	asking sync.WaitGroup
}

// explain returns o, or for a timeout what the server said, to another command or late.
func (l *lateAnswer) explain(o *Outage) *Outage {
	if l.connect == nil {
		return o
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch o.State {
	case StateLoading, StateBusy: // what keeps a server from answering in time
		l.found, l.said = o, time.Now()
	case StateTimeout:
		if l.cancel == nil && !l.closed {
			l.sendPing()
		}
		if l.found != nil && time.Since(l.said) < l.life {
			return l.found
		}
	}
	return o
}

// sendPing asks. The caller holds the lock.
func (l *lateAnswer) sendPing() {
	ctx, cancel := context.WithCancel(context.Background())
	client := l.connect()
	l.cancel = func() { // the client library does not give up a command for a context alone
		cancel()
		_ = client.Close() // it is asked for a PING and nothing else
	}
	l.asking.Go(func() { l.awaitPing(ctx, client) })
}

// awaitPing waits for one answer.
func (l *lateAnswer) awaitPing(ctx context.Context, client redis.UniversalClient) {
	began := time.Now()
	err := client.Ping(ctx).Err()
	took := time.Since(began).Round(time.Millisecond)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cancel()
	l.cancel = nil
	switch o := outage(err); {
	case firstWord(err) != "":
		l.found, l.said = &Outage{State: o.State, Err: fmt.Errorf("%w (it answered after %v)", o.Err, took)}, time.Now()
	case err == nil, o.State != StateTimeout:
		l.found = nil
	}
}

// close ends the question that is under way.
func (l *lateAnswer) close() {
	l.mu.Lock()
	l.closed = true
	if l.cancel != nil {
		l.cancel()
	}
	l.mu.Unlock()
	l.asking.Wait()
}

// dialer connects within a time: with dial if it is given, which then handles TLS, else with TLS
// unless config is nil.
//
// A dial that fails returns a FailedConn. The caller decides how often to retry.
func dialer(timeout time.Duration, dial dialFunc, config *tls.Config) dialFunc {
	plain := &net.Dialer{Timeout: timeout}
	secure := dial != nil || config != nil
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
		cure := credentials.TLSCure(err, "REDIS_TLS_")
		var connect *net.OpError
		switch { // Not wrapped: the client library would return the wrapped error alone.
		case cure != "":
			err = fmt.Errorf("%v; %s", err, cure)
		case secure && errors.Is(err, context.DeadlineExceeded) && !errors.As(err, &connect):
			err = &refusedError{fmt.Sprintf("%v in the TLS handshake; if the port is without TLS, use redis:// and no setting of TLS", err), StateTimeout}
		case secure && (errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET)):
			err = fmt.Errorf("%v in the TLS handshake; a server at maxclients hangs up there: raise maxclients, or end clients that CLIENT LIST shows", err)
		}
		if err != nil {
			return redisclient.FailedConn{Err: err}, nil
		}
		return explain(conn), nil
	}
}

// A stopwatch measures the server's last response time on a connection, from the request to the
// first byte of the answer. It includes the network, but not reading and parsing a long answer. It
// is for one connection that one goroutine uses at a time.
type stopwatch struct {
	asked atomic.Int64 // nanoseconds since start, of the last write
	took  atomic.Int64 // nanoseconds, of the last answer
	conn  atomic.Pointer[timedConn]
}

var stopwatchStart = time.Now()

// last returns the time of the last answer.
func (s *stopwatch) last() time.Duration { return time.Duration(s.took.Load()) }

// reached returns the address that the last dial led to.
func (s *stopwatch) reached() string {
	if c := s.conn.Load(); c != nil {
		return c.RemoteAddr().String()
	}
	return ""
}

type dialFunc = func(ctx context.Context, network, addr string) (net.Conn, error)

// dialer times the connections that dial makes.
func (s *stopwatch) dialer(dial dialFunc) dialFunc {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
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

// SetClientLog sets the destination of the messages of the Redis client library, which writes them
// to standard error by default. They go to log at level debug, since relevant messages are also
// returned as errors, or nowhere if log is nil. The setting applies to every go-redis client in the
// process, so programs call it and libraries do not. It can be called at any time.
func SetClientLog(log *slog.Logger) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	redis.SetLogger(clientLog{log})
}

type clientLog struct{ log *slog.Logger }

func (c clientLog) Printf(ctx context.Context, format string, args ...any) {
	if c.log.Enabled(ctx, slog.LevelDebug) {
		c.log.DebugContext(ctx, "redis client", "text", fmt.Sprintf(format, args...))
	}
}
