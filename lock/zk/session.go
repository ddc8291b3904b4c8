package zk

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/unstale/unstale/internal/credentials"
	"github.com/unstale/unstale/lock/internal/locking"
)

// pauseTime is how long a call that has failed waits before it is repeated.
const pauseTime = 10 * time.Millisecond

// errSession is wrapped by what ends a session.
var errSession = errors.New("the session with ZooKeeper has ended")

// A session is one ZooKeeper session. The library would begin another one on its own, without the
// nodes. This type does not let it connect again once the session has ended.
type session struct {
	service *service
	hosts   *hosts
	conn    *zk.Conn
	life    context.Context // ends with the session, for a reason
	end     context.CancelCauseFunc
	events  <-chan zk.Event // closed when the library is done
	ready   chan struct{}   // closed when the account is known

	mu      sync.Mutex
	up      chan struct{} // closed while there is a connection
	wire    *wire         // the latest one
	problem error         // with the latest one, nil while there is a connection
	silent  atomic.Bool   // a server has left a request unanswered, and none has answered since
	watched map[string]chan struct{}
}

// newSession returns a session, which run then opens.
func newSession(s *service) (*session, error) {
	session := &session{service: s, hosts: &hosts{}, ready: make(chan struct{}), up: make(chan struct{}), watched: map[string]chan struct{}{}}
	session.life, session.end = context.WithCancelCause(context.Background())
	var err error
	session.conn, session.events, err = zk.Connect(s.backend.Servers, s.lifetime(), zk.WithDialer(session.dial), zk.WithHostProvider(session.hosts),
		zk.WithLogger(libraryLog{s.config.Logger}), zk.WithEventCallback(session.event))
	return session, err
}

// lifetime returns the timeout of a session whose process has stopped sending. A follower passes on
// its messages with the next ping of the leader. The leader therefore counts from an earlier
// message than the last answered one: by TTL/3 and a tick.
func (s *service) lifetime() time.Duration {
	return (s.config.TTL * 3 / 2).Truncate(time.Millisecond)
}

// run logs in, and closes the connection when the session has ended, which takes a second if no
// server answers.
func (s *session) run() {
	if user := s.service.backend.User; user != "" {
		_, err := retry(s.life, s, func() (struct{}, error) {
			return struct{}{}, s.conn.AddAuth("digest", []byte(user+":"+s.service.backend.Password))
		})
		if err != nil {
			s.end(fmt.Errorf("%w: log in: %w", errSession, err))
		}
	}
	close(s.ready)
	<-s.life.Done()
	s.wakeAll()
	s.conn.Close()
	s.hangUp()
	for range s.events { // which only repeat the events
		continue
	}
}

// dial connects, as the library asks for.
func (s *session) dial(network, address string, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(s.life, min(timeout, s.service.lifetime()/3))
	defer cancel()
	conn, err := s.service.backend.Dial(ctx, network, address)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		if s.life.Err() == nil {
			s.problem = credentials.WithTLSCure(err, "")
		}
		return nil, err
	}
	limit := min(s.service.config.Timeout<<s.hosts.rounds, s.service.lifetime()/3)
	s.wire = &wire{Conn: conn, until: time.Now().Add(limit)}
	if s.life.Err() != nil {
		_ = conn.Close()
	}
	return s.wire, nil
}

// event handles events of the connection and of nodes. It must not block the library.
func (s *session) event(e zk.Event) {
	if e.Type != zk.EventSession {
		s.wake(e.Path)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch e.State {
	case zk.StateHasSession:
		if granted, wanted := s.wire.granted(), s.service.lifetime(); granted < wanted {
			s.end(fmt.Errorf("%w: the servers end it after %v, and TTL needs %v: set TTL to %v at most, or raise their maxSessionTimeout",
				errSession, granted, wanted, (granted * 2 / 3).Truncate(time.Millisecond)))
			return
		}
		s.problem = nil
		if !isClosed(s.up) {
			close(s.up)
		}
	case zk.StateExpired:
		s.end(fmt.Errorf("%w: the servers have received nothing for %v", errSession, s.service.lifetime()))
	case zk.StateDisconnected:
		if isClosed(s.up) {
			s.up = make(chan struct{})
			s.problem = errors.New("the connection was lost")
		}
	}
}

// connected waits for a connection.
func (s *session) connected(ctx context.Context) error {
	s.mu.Lock()
	up := s.up
	s.mu.Unlock()
	for _, wait := range []<-chan struct{}{s.ready, up} {
		if ctx == s.life && wait == s.ready {
			continue // this is how run logs in, and what is done after that
		}
		select {
		case <-wait:
		case <-s.life.Done():
		case <-ctx.Done():
		}
		switch {
		case s.life.Err() != nil:
			return context.Cause(s.life)
		case ctx.Err() != nil:
			return s.unanswered(ctx)
		}
	}
	return nil
}

// pause limits the rate of calls that fail immediately.
func (s *session) pause(ctx context.Context) error {
	select {
	case <-time.After(pauseTime):
		return nil
	case <-s.life.Done():
		return context.Cause(s.life)
	case <-ctx.Done():
		return s.unanswered(ctx)
	}
}

// patience is how long a connection may receive nothing while a request waits: half of Timeout. A
// release then still has time to ask another server. ZooKeeper 3.8 may leave a write unanswered
// until something else happens (on a busy machine, one of some 3,000 writes to a new ensemble).
// After such a connection the patience is all of Timeout until a server answers, since all servers
// may be slow.
func (s *session) patience() time.Duration {
	if s.silent.Load() {
		return s.service.config.Timeout
	}
	return s.service.config.Timeout / 2
}

// watchdog closes a connection that receives nothing for too long while a request waits. Then
// another server is asked. The library would wait for two thirds of the session timeout.
func (s *session) watchdog() (stop func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	begun, stopped := locking.Now(), false
	var timer *time.Timer
	timer = time.AfterFunc(s.patience(), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !stopped {
			timer.Reset(s.suspect(begun))
		}
	})
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		stopped = true
		timer.Stop()
	}
}

// suspect closes a connection that has received nothing for too long, and nothing since a request
// was sent. It returns when to check again.
func (s *session) suspect(sent time.Duration) time.Duration {
	limit := s.patience()
	if s.wire == nil || !isClosed(s.up) {
		return limit // another server is dialled already
	}
	if left := max(sent, s.wire.heard()) + limit - locking.Now(); left > 0 {
		return left
	}
	s.silent.Store(true)
	_ = s.wire.Close()
	return limit
}

func (s *session) hangUp() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.wire != nil {
		_ = s.wire.Close()
	}
}

// watch returns a channel that is closed when a node is gone. A node has one watch for any number
// of waiters: the library cannot remove one. A watch for children is not triggered by writes, and
// leaves nothing if the node is already gone.
func (s *session) watch(path string) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if gone := s.watched[path]; gone != nil {
		return gone
	}
	gone := make(chan struct{})
	s.watched[path] = gone
	started := s.service.start(func() {
		_, err := retry(s.life, s, func() (struct{}, error) {
			_, _, _, err := s.conn.ChildrenW(path)
			return struct{}{}, err
		})
		if err != nil {
			s.wake(path)
		}
	})
	if !started {
		delete(s.watched, path)
		return nil
	}
	return gone
}

func (s *session) wake(path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if gone := s.watched[path]; gone != nil {
		delete(s.watched, path)
		close(gone)
	}
}

func (s *session) wakeAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for path, gone := range s.watched {
		delete(s.watched, path)
		close(gone)
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// A wire is a connection that records data that the library does not report: the time of the last
// received data, and the session timeout of the server, which is at the beginning of its first
// answer.
type wire struct {
	net.Conn
	until   time.Time // for the first answer
	head    []byte    // of the first answer: length, version, timeout in ms; used by one goroutine
	timeout atomic.Int32
	last    atomic.Int64
}

const headLength = 12

// Read implements net.Conn.
func (w *wire) Read(b []byte) (int, error) {
	n, err := w.Conn.Read(b)
	if n > 0 {
		w.last.Store(int64(locking.Now()))
	}
	if missing := headLength - len(w.head); missing > 0 {
		w.head = append(w.head, b[:min(n, missing)]...)
		if len(w.head) == headLength {
			w.timeout.Store(int32(binary.BigEndian.Uint32(w.head[8:])))
		}
	}
	return n, err
}

// SetReadDeadline implements net.Conn. The library would wait for the first answer of a frozen
// server for several sessions.
func (w *wire) SetReadDeadline(t time.Time) error {
	if len(w.head) < headLength {
		t = w.until
	}
	return w.Conn.SetReadDeadline(t)
}

func (w *wire) heard() time.Duration   { return time.Duration(w.last.Load()) }
func (w *wire) granted() time.Duration { return time.Duration(w.timeout.Load()) * time.Millisecond }

// mostRounds is the round count that ends the growth of patience: Timeout is at least a
// millisecond, and TTL at most a day.
const mostRounds = 16

// hosts go round the servers. Names are looked up when they are dialled, where the library would do
// so once. For one goroutine.
type hosts struct {
	servers   []string
	at, begun int // where the round began, below 0 before the first
	// failed rounds since the latest connection: each has twice the patience of the previous one
	rounds int
}

// Init implements zk.HostProvider.
func (h *hosts) Init(servers []string) error {
	h.servers, h.at, h.begun = servers, -1, -1
	return nil
}

// Len implements zk.HostProvider.
func (h *hosts) Len() int { return len(h.servers) }

// Next implements zk.HostProvider. The library pauses for a second before each further round.
func (h *hosts) Next() (server string, again bool) {
	h.at = (h.at + 1) % len(h.servers)
	if again = h.at == h.begun; again && h.rounds < mostRounds {
		h.rounds++
	}
	h.begun = max(h.begun, 0)
	return h.servers[h.at], again
}

// Connected implements zk.HostProvider.
func (h *hosts) Connected() { h.begun, h.rounds = h.at, 0 }

// libraryLog takes what the library says, which matters where a call fails, and is then in its
// error.
type libraryLog struct{ *slog.Logger }

// Printf implements zk.Logger.
func (l libraryLog) Printf(format string, args ...any) {
	l.Debug("zookeeper: " + strings.TrimSpace(fmt.Sprintf(format, args...)))
}
