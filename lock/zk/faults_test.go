package zk_test

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/lock"
	"github.com/unstale/unstale/lock/internal/locktest"
	"github.com/unstale/unstale/lock/zk"
)

// creating is a connection to ZooKeeper that calls before for each request to create a node. If
// that returns true, it drops the next answer and the connection. The request has been processed by
// then.
type creating struct {
	net.Conn
	before func() (lose bool)
	lose   atomic.Bool
}

// dialCreating makes such connections.
func dialCreating(before func() (lose bool)) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		return &creating{Conn: conn, before: before}, err
	}
}

func (c *creating) Write(p []byte) (int, error) {
	const create = 1
	if len(p) >= 12 && binary.BigEndian.Uint32(p[8:]) == create && c.before() {
		c.lose.Store(true)
	}
	return c.Conn.Write(p)
}

func (c *creating) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 && c.lose.CompareAndSwap(true, false) {
		_ = c.Conn.Close()
		return 0, syscall.ECONNRESET
	}
	return n, err
}

// A claim whose node was made, and whose reply was lost, finds its node again.
func TestZooKeeperLostReply(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	backend := w.backend
	var armed atomic.Bool
	backend.Dial = dialCreating(func() bool { return armed.CompareAndSwap(true, false) })
	l := w.Locker(lock.Config{Backend: backend})
	must(t, w.Acquire(l, "a").Release()) // the path exists
	for range 5 {
		armed.Store(true)
		held, err := l.Acquire(t.Context(), "a")
		must(t, err)
		if armed.Load() {
			t.Fatal("no reply was lost")
		}
		w.wantNodes("a", 1)
		must(t, w.extend(t.Context(), held))
		must(t, held.Release())
		w.wantNodes("a", 0)
	}
}

// The subtests freeze and kill the same servers.
func TestZooKeeperFaults(t *testing.T) {
	t.Parallel()
	ensemble := testenv.OwnZooKeeper(t, 3, "")
	t.Run("all are frozen", func(t *testing.T) { allFrozen(t, worldIn(t, ensemble, "/frozen")) })
	t.Run("a release with a frozen server", func(t *testing.T) { releaseElsewhere(t, worldIn(t, ensemble, "/release")) })
	t.Run("the first is frozen", func(t *testing.T) { firstFrozen(t, worldIn(t, ensemble, "/first")) })
	t.Run("one at a time", func(t *testing.T) { oneAtATime(t, worldIn(t, ensemble, "/lost")) })
}

// Attempts end with their contexts while all servers are frozen, and leave nothing behind when
// these resume. A holder that receives nothing gives up before another one gets the lock.
func allFrozen(t *testing.T, w *world) {
	t.Helper()
	ours, theirs := w.warm(w.Locker(lock.Config{TTL: 2 * short})), w.Locker(lock.Config{})
	held := w.Acquire(ours, "a")
	kept := w.Acquire(theirs, "kept")
	extend := func(limit time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		return w.extend(ctx, kept)
	}
	must(t, extend(time.Minute))
	for _, n := range w.ensemble.Nodes {
		if n.Addr() != w.serverOf(theirs) {
			must(t, n.Pause())
		}
	}
	wantError(t, "an extension by a server that is cut off", extend(300*time.Millisecond), context.DeadlineExceeded)
	must(t, w.ensemble.Pause())
	var group sync.WaitGroup
	for _, name := range strings.Split("a b c d", " ") {
		group.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			_, err := theirs.Acquire(ctx, name)
			wantError(t, "an acquisition", err, context.DeadlineExceeded)
			_, err = theirs.TryAcquire(ctx, name)
			wantError(t, "an attempt", err, context.DeadlineExceeded)
		})
	}
	group.Wait()
	<-held.Context().Done()
	wantError(t, "a lock in silence", context.Cause(held.Context()), lock.ErrLost)
	unreleased := w.Locker(lock.Config{TTL: short})
	_, err := unreleased.TryAcquire(t.Context(), "a")
	wantError(t, "an attempt without a session", err, context.DeadlineExceeded)
	must(t, unreleased.Close()) // while no server answers
	must(t, w.ensemble.Resume())
	testenv.Eventually(t, "the lock that nobody has released", func() bool {
		next, err := theirs.Acquire(t.Context(), "a")
		return err == nil && next.Release() == nil
	})
	for _, name := range strings.Split("a b c d", " ") {
		testenv.Eventually(t, "nothing to be left of "+name, func() bool { return len(w.nodes(name)) == 0 })
	}
}

// leaderOf waits for a leader.
func leaderOf(w *world) (leader *servers.ZooKeeperNode) {
	w.Helper()
	testenv.Eventually(w.TB, "a leader", func() (found bool) {
		var err error
		leader, err = w.ensemble.Leader(w.Context())
		return err == nil
	})
	return leader
}

// caughtUp waits until all servers have the same state. A new leader of ZooKeeper 3.8 may mistake
// the first acknowledgement of a lagging follower for one of another epoch, and then serves no
// client for initLimit.
func caughtUp(w *world) {
	w.Helper()
	testenv.Eventually(w.TB, "all servers to know the same", func() bool {
		known := map[string]bool{}
		for _, n := range w.ensemble.Nodes {
			text, err := n.Ask(w.Context(), "srvr")
			_, zxid, found := strings.Cut(text, "Zxid: ")
			if err != nil || !found {
				return false
			}
			zxid, _, _ = strings.Cut(zxid, "\n")
			known[zxid] = true
		}
		return len(known) == 1
	})
}

// A Locker whose first connection is to a frozen server, which accepts it and never replies,
// switches to another one.
func firstFrozen(t *testing.T, w *world) {
	t.Helper()
	leader := leaderOf(w)
	frozen := w.ensemble.Nodes[slices.IndexFunc(w.ensemble.Nodes, func(n *servers.ZooKeeperNode) bool { return n != leader })]
	must(t, frozen.Pause())
	defer func() { must(t, frozen.Resume()) }()
	backend := w.backend
	var dialled atomic.Bool
	backend.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if dialled.CompareAndSwap(false, true) {
			addr = frozen.Addr()
		}
		return new(net.Dialer).DialContext(ctx, network, addr)
	}
	w.warm(w.Locker(lock.Config{Backend: backend, Timeout: time.Second}))
}

// A release finds another server within Timeout if its own one has stopped responding.
func releaseElsewhere(t *testing.T, w *world) {
	t.Helper()
	l := w.warm(w.Locker(lock.Config{Backend: zk.Backend{Servers: followers(w), Root: w.root}, Timeout: 5 * time.Second}))
	held := w.Acquire(l, "a")
	server := nodeOf(w, l)
	must(t, server.Pause())
	defer func() {
		must(t, server.Resume())
		caughtUp(w)
	}()
	must(t, held.Release())
}

// followers returns the addresses of the servers that do not lead.
func followers(w *world) (addrs []string) {
	leader := leaderOf(w)
	for _, n := range w.ensemble.Nodes {
		if n != leader {
			addrs = append(addrs, n.Addr())
		}
	}
	return addrs
}

// nodeOf returns the server that a Locker has its session with.
func nodeOf(w *world, l *lock.Locker) *servers.ZooKeeperNode {
	return w.ensemble.Nodes[slices.IndexFunc(w.ensemble.Nodes, func(n *servers.ZooKeeperNode) bool { return n.Addr() == w.serverOf(l) })]
}

// A lock outlives the server of its Locker, frozen or killed, and the leader. So does a place in
// the queue.
func oneAtATime(t *testing.T, w *world) {
	t.Helper()
	leader := leaderOf(w)
	ours := w.warm(w.Locker(lock.Config{Backend: zk.Backend{Servers: followers(w), Root: w.root}, Timeout: time.Second}))
	held, got := w.Acquire(ours, "a"), make(chan *lock.Held, 1)
	theirs := w.Locker(lock.Config{})
	go func() {
		next, err := theirs.Acquire(t.Context(), "a")
		if err != nil {
			t.Errorf("a waiter: %v", err)
		}
		got <- next
	}()
	testenv.Eventually(t, "the waiter to queue", func() bool { return len(w.nodes("a")) == 2 })

	server := nodeOf(w, ours)
	must(t, server.Pause())
	// before the Locker does: a caller that gives up early has still found it unresponsive
	ctx, cancel := context.WithTimeout(t.Context(), time.Second/4)
	defer cancel()
	wantError(t, "a frozen server", w.extend(ctx, held), context.DeadlineExceeded)
	patiently, done := context.WithTimeout(t.Context(), time.Minute)
	defer done()
	must(t, w.extend(patiently, held))
	if w.serverOf(ours) == server.Addr() {
		t.Error("the Locker waits for the frozen server")
	}
	must(t, server.Resume())
	caughtUp(w)
	must(t, leader.Kill())
	must(t, w.extend(patiently, held))
	must(t, context.Cause(held.Context()))
	_ = held.Release() // it may take longer than a second, and continues then
	must(t, (<-got).Release())
}

// Servers that keep sessions for too short a time are refused, with the cure.
func TestZooKeeperShortSessions(t *testing.T) {
	t.Parallel()
	w := worldIn(t, testenv.OwnZooKeeper(t, 1, "maxSessionTimeout=6000\n"), "/locks")
	l := w.Locker(lock.Config{TTL: 4001 * time.Millisecond})
	const says = "the servers end it after 6s, and TTL needs 6.001s: set TTL to 4s at most, or raise their maxSessionTimeout"
	testenv.Eventually(t, "a refusal", func() bool {
		_, err := l.TryAcquire(t.Context(), "a")
		if err == nil {
			t.Fatal("the session is too short")
		}
		return strings.HasSuffix(err.Error(), says)
	})
	w.warm(w.Locker(lock.Config{TTL: 4 * time.Second}))
}

// Without a server, the error reports that.
func TestZooKeeperIsAway(t *testing.T) {
	t.Parallel()
	w := &locktest.World{TB: t}
	l := w.Locker(lock.Config{Backend: zk.Backend{Servers: []string{"127.0.0.1:1", "127.0.0.1:2"}}, Timeout: 100 * time.Millisecond})
	testenv.Eventually(t, "an error that says why", func() bool {
		_, err := l.TryAcquire(t.Context(), "a")
		wantError(t, "an acquisition", err, context.DeadlineExceeded)
		return errors.Is(err, syscall.ECONNREFUSED)
	})
}
