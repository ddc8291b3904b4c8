package protocol_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/clock"
	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/protocol"
)

// A switchOver is two servers behind a proxy, a worker, and a client. The first server is about to
// be left. The test moves the clocks of all of them.
type switchOver struct {
	*testing.T
	servers [2]*redis.Client
	clocks  [2]*clock.File
	client  *aliveClient
	proxy   *switchProxy
	left    time.Duration // when the worker left the first server, by the client's clock; negative: not yet
	late    int           // callers that began too late for a value of the first server, and used it
}

const (
	works   = time.Minute      // a worker that writes all the time has written so far ahead
	longAgo = 10 * time.Second // more than a value may be used for
)

// newSwitchOver starts with a connection to the first server, where the worker writes. library is
// the result of clock.Library.
func newSwitchOver(t *testing.T, library string, pause time.Duration, without int) *switchOver {
	t.Helper()
	s := &switchOver{T: t, left: -1}
	for i := range s.servers {
		var err error
		s.clocks[i], err = clock.NewFile(filepath.Join(t.TempDir(), "offset"))
		testenv.Must(t, err)
		t.Cleanup(func() { testenv.Must(t, s.clocks[i].Close()) })
		server, err := servers.StartRedis(t.Context(), servers.RedisOptions{Env: []string{library, s.clocks[i].Env()}, Args: []string{"--repl-diskless-sync-delay", "0"}})
		testenv.Must(t, err)
		t.Cleanup(func() { testenv.Must(t, server.Close()) })
		s.servers[i] = testenv.Client(t, server.URL())
		testenv.Must(t, s.servers[i].Set(t.Context(), "k", []string{"old", "new"}[i], 0).Err())
	}
	s.proxy = newSwitchProxy(t, s.addr(0))
	s.wrote(0, -works)
	s.client = &aliveClient{T: t, addr: s.proxy.Addr().String(), pause: pause, without: without, finished: s.check}
	s.client.dial()
	return s
}

func (s *switchOver) addr(server int) string { return s.servers[server].Options().Addr }

// wrote makes that the worker wrote to a server so long ago.
func (s *switchOver) wrote(server int, ago time.Duration) {
	s.Helper()
	now, err := s.servers[server].Time(s.Context()).Result()
	testenv.Must(s, err)
	text := protocol.Alive{Time: now.Add(-ago).UnixMicro(), Lease: 10_000}.String()
	testenv.Must(s, s.servers[server].HSet(s.Context(), protocol.AliveKey(""), "shop", text).Err())
}

// leave moves the worker to the second server, where it last wrote so long ago, and new connections
// with it. The client's connection stays. Then time passes.
func (s *switchOver) leave(ago time.Duration) {
	s.Helper()
	s.wrote(0, 0)
	s.wrote(1, ago)
	s.left = s.client.now
	s.proxy.lead(s.addr(1))
	s.pass(longAgo)
}

// pass moves all clocks forward.
func (s *switchOver) pass(time time.Duration) {
	s.client.now += time
	for _, c := range s.clocks {
		c.Set(s.client.now)
	}
}

// check records a value that was used too late.
func (s *switchOver) check(r *reading) {
	life := time.Duration(protocol.AliveLife) * time.Microsecond
	if r.value == "old" && s.left >= 0 && r.began > s.left+life+s.client.pause {
		s.late++
	}
}

// want compares what a caller gets that waits for it.
func (s *switchOver) want(value string) {
	s.Helper()
	r := s.client.begin()
	s.client.flush()
	s.receiveAll()
	if r.value != value {
		s.Fatalf("got %q, wanted %q", r.value, value)
	}
}

func (s *switchOver) receiveAll() {
	s.Helper()
	for len(s.client.pending) > 0 {
		s.client.receive()
	}
}

// ran waits until the first server has executed a command that only the client sends.
func (s *switchOver) ran(command string) {
	s.Helper()
	testenv.Eventually(s, command, func() bool {
		return s.servers[0].InfoMap(s.Context(), "commandstats").Val()["Commandstats"]["cmdstat_"+command] != ""
	})
}

// demote makes the first server a replica of the second one, and waits until it has its data.
func (s *switchOver) demote() {
	s.Helper()
	host, port, err := net.SplitHostPort(s.addr(1))
	testenv.Must(s, err)
	testenv.Must(s, s.servers[0].Do(s.Context(), "replicaof", host, port).Err())
	testenv.Eventually(s, "replication", func() bool {
		return s.servers[0].HGet(s.Context(), protocol.AliveKey(""), "shop").Val() == s.servers[1].HGet(s.Context(), protocol.AliveKey(""), "shop").Val()
	})
}

func clockLibrary(t *testing.T) string {
	t.Helper()
	library, err := clock.Library(t.TempDir())
	testenv.Must(t, err)
	return library
}

// A switchProxy leads new connections elsewhere. Those that it has stay.
type switchProxy struct {
	net.Listener
	mu sync.Mutex
	to string
}

func newSwitchProxy(t *testing.T, to string) *switchProxy {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	testenv.Must(t, err)
	p := &switchProxy{Listener: listener, to: to}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := p.Accept()
			if err != nil {
				return
			}
			running.Go(func() { p.relay(conn) })
		}
	})
	t.Cleanup(func() { _ = p.Close(); running.Wait() })
	return p
}

func (p *switchProxy) lead(to string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.to = to
}

func (p *switchProxy) relay(conn net.Conn) {
	defer conn.Close()
	p.mu.Lock()
	to := p.to
	p.mu.Unlock()
	up, err := new(net.Dialer).DialContext(context.Background(), "tcp", to)
	if err != nil {
		return
	}
	defer up.Close()
	go func() { _, _ = io.Copy(conn, up) }()
	_, _ = io.Copy(up, conn) // until the client closes it
}

// Each way in which a client goes wrong without a rule of protocol/models/alive.pml, by the number of
// the rule: a caller that begins too late uses a value of the server that the worker has left. With
// the rule it does not.
func TestSwitchOver(t *testing.T) {
	t.Parallel()
	library := clockLibrary(t)
	for _, c := range []struct {
		rule  int
		says  string
		pause time.Duration
		play  func(*switchOver)
	}{
		{1, "a pipeline answers nobody who came after it was sent", 0, func(s *switchOver) {
			s.client.begin()
			s.client.flush()
			s.ran("get")
			s.leave(-works)
			s.client.begin()
			s.receiveAll()
		}},
		{2, "an answer counts for its connection only", askPause, func(s *switchOver) {
			s.leave(-works)
			s.client.dial()
			s.want("new")
			s.proxy.lead(s.addr(0))
			s.client.dial()
			s.proxy.lead(s.addr(1))
			s.client.begin()
		}},
		{2, "what is sent again over another connection is not covered", 0, func(s *switchOver) {
			s.leave(-works)
			s.client.dial()
			s.client.begin()
			s.client.flush()
			s.client.receive() // the answer
			s.proxy.lead(s.addr(0))
			s.client.dial()
		}},
		{3, "each pipeline asks that is sent more than the pause after the latest question", askPause, func(s *switchOver) {
			s.want("old")
			s.leave(-works)
			s.client.begin()
		}},
		{4, "the pause counts since the question was sent", askPause, func(s *switchOver) {
			s.client.begin()
			s.client.flush()
			s.ran("get")
			s.leave(-works)
			s.receiveAll()
			s.client.begin()
		}},
		{5, "the question is in front of the reads", 0, func(s *switchOver) {
			s.leave(-works)
			s.client.between = func() {
				s.ran(map[bool]string{true: "get", false: "hget"}[s.client.without == 5])
				s.demote()
			}
			s.client.begin()
		}},
		{6, "after an old answer, a new connection gets an old one too", 0, func(s *switchOver) {
			s.leave(-works)
			s.client.begin()
		}},
		{7, "and it has the same time of writing", 0, func(s *switchOver) {
			s.leave(0) // and writes nowhere then
			s.client.begin()
		}},
	} {
		for _, without := range []int{0, c.rule} {
			t.Run(fmt.Sprintf("%s, without %d", c.says, without), func(t *testing.T) {
				t.Parallel()
				s := newSwitchOver(t, library, c.pause, without)
				c.play(s)
				s.client.flush()
				s.receiveAll()
				if used := s.late > 0; used != (without > 0) {
					t.Errorf("a caller that began too late has used the value of the server that the worker had left: %v", used)
				}
			})
		}
	}
}

// A client with one connection asks once per pause, and uses what its connection answers meanwhile.
func TestOneConnectionAsksRarely(t *testing.T) {
	t.Parallel()
	s := newSwitchOver(t, clockLibrary(t), askPause, 0)
	for i, pass := range []time.Duration{0, askPause / 2, askPause / 2, 1, askPause} {
		s.pass(pass)
		s.want("old")
		if asked := []int{1, 1, 1, 2, 2}[i]; s.client.questions != asked {
			t.Errorf("read %d: %d questions, wanted %d", i+1, s.client.questions, asked)
		}
	}
}

// If no worker runs, a new connection gets the same answer, and values are used.
func TestOneConnectionWithoutWorkers(t *testing.T) {
	t.Parallel()
	for _, pause := range []time.Duration{0, askPause} {
		s := newSwitchOver(t, clockLibrary(t), pause, 0)
		s.wrote(0, 0)
		s.pass(longAgo)
		s.want("old")
	}
}
