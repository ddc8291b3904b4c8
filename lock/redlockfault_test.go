package lock_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/storetest/schematest"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/lock"
)

func (i *instances) freeze(where ...int) {
	i.Helper()
	for _, n := range where {
		must(i, i.servers[n].Pause())
	}
}

func (i *instances) thaw(where ...int) {
	i.Helper()
	for _, n := range where {
		must(i, i.servers[n].Resume())
	}
}

// wantQuiet waits until an instance has read all data of clients that have closed.
func (i *instances) wantQuiet() {
	i.Helper()
	for n, admin := range i.admins {
		testenv.Eventually(i, fmt.Sprintf("instance %d to have heard its clients out", n), func() bool {
			return strings.Count(admin.ClientList(i.Context()).Val(), "\n") == 1
		})
	}
}

// Locks work with two of five instances frozen. Requests to those delay nothing when they resume.
func TestRedlockMinorityFrozen(t *testing.T) {
	t.Parallel()
	five := newInstances(t, 5)
	l := five.process(lock.Config{})
	must(t, five.Acquire(l, "a").Release()) // all have connections, scripts and known clocks
	five.wantKept()
	five.freeze(0, 1)
	held := five.Acquire(l, "a")
	must(t, lock.Extend(t.Context(), held))
	_, err := l.TryAcquire(t.Context(), "a")
	if !errors.As(err, new(*lock.HeldError)) {
		t.Errorf("a lock that is held: %v", err)
	}
	must(t, held.Release())
	five.thaw(0, 1)
	five.wantKept()
	must(t, five.Acquire(l, "a").Release())
}

// With three of five frozen, an acquisition ends with an error, and releases the others. Requests
// to the frozen ones lock nothing when they resume.
func TestRedlockMajorityFrozen(t *testing.T) {
	t.Parallel()
	five := newInstances(t, 5)
	clients := five.clients()
	l := five.Locker(lock.Config{Backend: lock.Redlock{Clients: clients}})
	must(t, five.Acquire(l, "a").Release()) // all have connections, scripts and known clocks
	five.wantKept()
	five.freeze(0, 1, 2)
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	_, err := l.TryAcquire(ctx, "a")
	if err == nil || errors.As(err, new(*lock.HeldError)) || !strings.Contains(err.Error(), "no quorum of 5 instances, since ") {
		t.Errorf("three of five are frozen: %v", err)
	}
	testenv.Eventually(t, "those that are not to be released", func() bool {
		return five.admins[3].Exists(t.Context(), five.key()).Val()+five.admins[4].Exists(t.Context(), five.key()).Val() == 0
	})
	for _, client := range clients { // which ends the releases without a reply
		must(t, client.Close())
	}
	must(t, l.Close())
	five.thaw(0, 1, 2)
	five.wantQuiet()
	if has := five.has(); has != nil {
		t.Errorf("instances %v have the lock", has)
	}
}

// hesitant is a connection that holds one request back when told to.
type hesitant struct {
	net.Conn
	until *atomic.Pointer[chan struct{}]
}

func (h hesitant) Write(p []byte) (int, error) {
	if until := h.until.Swap(nil); until != nil {
		<-*until
	}
	return h.Conn.Write(p)
}

// through returns a client of an instance whose connections are wrapped.
func (i *instances) through(n int, wrap func(net.Conn) net.Conn) *redis.Client {
	return testenv.Client(i, "redis://"+i.servers[n].Addr(), func(o *redis.Options) {
		o.MaxRetries = -1
		o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
			return wrap(conn), err
		}
	})
}

// An instance whose answer is lost has locked. It is released when the attempt has failed.
func TestRedlockLostAnswer(t *testing.T) {
	t.Parallel()
	three := newInstances(t, 3)
	var lose atomic.Bool
	clients := three.clients()
	clients[0] = three.through(0, func(conn net.Conn) net.Conn { return forgetful{conn, &lose} })
	l := three.Locker(lock.Config{Backend: lock.Redlock{Clients: clients}})
	must(t, three.Acquire(l, "a").Release())
	three.wantKept()
	three.set(1, 2)
	sets := calls(t, three.admins[0], "set")
	lose.Store(true)
	if _, err := l.TryAcquire(t.Context(), "a"); !errors.As(err, new(*lock.HeldError)) {
		t.Errorf("two of three are taken: %v", err)
	}
	testenv.Eventually(t, "the first instance to have locked", func() bool { return calls(t, three.admins[0], "set") > sets })
	three.wantKept(1, 2)
	if lose.Load() {
		t.Error("no answer was lost")
	}
}

// Two instances of three lose their answers with the connections. The claim is given back, and
// another one gets the lock.
func TestRedlockLostQuorum(t *testing.T) {
	t.Parallel()
	three := newInstances(t, 3)
	var lose [2]atomic.Bool
	clients := three.clients()
	for n := range lose {
		clients[n] = three.through(n, func(conn net.Conn) net.Conn { return forgetful{conn, &lose[n]} })
	}
	// The TTL ends after the test, so a claim that is not given back shows.
	l := three.Locker(lock.Config{Backend: lock.Redlock{Clients: clients}, TTL: time.Hour})
	must(t, three.Acquire(l, "a").Release())
	three.wantKept()
	for n := range lose {
		lose[n].Store(true)
	}
	// A quorum without an instance that is slow, as on a busy machine, does not ask it in time.
	testenv.Eventually(t, "two instances to lose an answer", func() bool {
		must(t, three.Acquire(l, "a").Release()) // the previous claim may not be given back yet
		return !lose[0].Load() && !lose[1].Load()
	})
	three.wantKept()
}

// A request for a lock that has been had without it, and was released, is released when it has
// arrived.
func TestRedlockLateRequest(t *testing.T) {
	t.Parallel()
	three := newInstances(t, 3)
	var until atomic.Pointer[chan struct{}]
	clients := three.clients()
	clients[0] = three.through(0, func(conn net.Conn) net.Conn { return hesitant{conn, &until} })
	l := three.Locker(lock.Config{Backend: lock.Redlock{Clients: clients}, Timeout: time.Minute})
	must(t, three.Acquire(l, "a").Release())
	three.wantKept()
	sets, arrive := calls(t, three.admins[0], "set"), make(chan struct{})
	until.Store(&arrive)
	must(t, three.Acquire(l, "a").Release())
	three.wantKept()
	close(arrive)
	testenv.Eventually(t, "the request to arrive", func() bool { return calls(t, three.admins[0], "set") > sets })
	three.wantKept()
}

// A copy of a request that arrives after the release, in addition to a quorum, has no owner. The
// instance is released again when the window of the claim ends, and not after TTL.
func TestRedlockCopyAfterTheRelease(t *testing.T) {
	t.Parallel()
	three := newInstances(t, 3)
	part := newParting(t)
	clients := three.clients()
	clients[0] = three.through(0, part.wrap)
	l := three.Locker(lock.Config{Backend: lock.Redlock{Clients: clients}, Timeout: 3 * time.Second})
	must(t, three.Acquire(l, "a").Release())
	three.wantKept()
	part.arm()
	testenv.Eventually(t, "a request to be parted from its sender", func() bool {
		must(t, three.Acquire(l, "a").Release())
		return !part.armed.Load()
	})
	three.wantKept()
	before := calls(t, three.admins[0], "evalsha")
	part.arrive()
	testenv.Eventually(t, "the copy to arrive", func() bool { return calls(t, three.admins[0], "evalsha") > before })
	three.wantKept()
}

// calls returns how often an instance has run a command.
func calls(t testing.TB, client *redis.Client, command string) int64 {
	t.Helper()
	return worldOf(t, client).calls(command)
}

// An instance that restarts without its locks lets a second holder in: unguarded sections overlap.
// Guard refuses the first one, and its update is not lost.
func TestRedlockRestart(t *testing.T) {
	t.Parallel()
	three := newInstances(t, 3)
	three.Env = testenv.MySQL(t)
	schematest.Up(t, three.Env.DB)
	three.SQL("CREATE TABLE counters (name VARCHAR(20) PRIMARY KEY, n INT NOT NULL) ENGINE=InnoDB")
	three.SQL("INSERT INTO counters VALUES ('a', 0)")
	first := three.Acquire(three.process(lock.Config{}), "a")
	three.wantKept(0, 1, 2)
	for _, n := range []int{1, 2} {
		must(t, three.servers[n].Kill())
		must(t, three.servers[n].Restart(t.Context()))
	}
	second := three.Acquire(three.process(lock.Config{}), "a")
	if first.Context().Err() != nil || second.Context().Err() != nil {
		t.Fatalf("they do not overlap: %v, %v", context.Cause(first.Context()), context.Cause(second.Context()))
	}
	work := func(tx *sql.Tx) error { return add(t.Context(), tx, "a") }
	wantError(t, "the first holder", first.InTx(t.Context(), three.Env.DB, work), lock.ErrLost)
	must(t, second.InTx(t.Context(), three.Env.DB, work))
	if n := three.Counter("a"); n != 1 {
		t.Errorf("the counter is %d", n)
	}
}

// A claim that was released, and that an instance still has, holds nothing: with two instances
// frozen, the next attempt of the process releases it there, too, and has a quorum.
func TestRedlockReleaseIsLate(t *testing.T) {
	t.Parallel()
	five := newInstances(t, 5)
	var until atomic.Pointer[chan struct{}]
	clients := five.clients()
	clients[0] = five.through(0, func(conn net.Conn) net.Conn { return hesitant{conn, &until} })
	// After Timeout the release is repeated: a busy machine needs time.
	l := five.Locker(lock.Config{Backend: lock.Redlock{Clients: clients}, Timeout: time.Minute})
	must(t, five.Acquire(l, "a").Release()) // all have connections, scripts and known clocks
	five.wantKept()
	held := five.Acquire(l, "a")
	five.wantKept(0, 1, 2, 3, 4)
	arrive := make(chan struct{})
	defer close(arrive)
	until.Store(&arrive)
	must(t, held.Release())
	testenv.Eventually(t, "the release to reach all but the first", func() bool { return until.Load() == nil && len(five.has()) == 1 })
	five.freeze(1, 2)
	defer five.thaw(1, 2)
	next, err := l.TryAcquire(t.Context(), "a")
	must(t, err)
	must(t, next.Release())
}

// A lock that is held does not return to an instance that restarts without data. Two of five
// restarts, one at a time, cost nothing else, and the third one loses it.
func TestRedlockRestartsOneByOne(t *testing.T) {
	t.Parallel()
	five := newInstances(t, 5)
	held, theirs := five.Acquire(five.process(lock.Config{}), "a"), five.process(lock.Config{})
	five.wantKept(0, 1, 2, 3, 4)
	for n, left := range [][]int{{1, 2, 3, 4}, {2, 3, 4}, {3, 4}} {
		must(t, five.servers[n].Kill())
		must(t, five.servers[n].Restart(t.Context()))
		err := lock.Extend(t.Context(), held)
		five.wantKept(left...)
		if n == 2 {
			wantError(t, "the third restart", err, lock.ErrLost)
			return
		}
		must(t, err)
		if _, err := theirs.TryAcquire(t.Context(), "a"); !errors.As(err, new(*lock.HeldError)) {
			t.Errorf("restart %d: another attempt: %v", n+1, err)
		}
		five.wantKept(left...)
	}
}
