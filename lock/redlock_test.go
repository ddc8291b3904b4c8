package lock_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/lock"
	"github.com/unstale/unstale/lock/internal/locktest"
)

// instances are the servers of one Redlock, or of several with different prefixes.
type instances struct {
	*world
	servers []*servers.Redis
	admins  []*redis.Client
	prefix  string
}

func newInstances(t testing.TB, n int) *instances {
	t.Helper()
	five := &instances{world: worldOf(t, nil), prefix: "lock:"}
	for range n {
		server := testenv.OwnRedis(t)
		five.servers = append(five.servers, server)
		five.admins = append(five.admins, testenv.Client(t, "redis://"+server.Addr()))
	}
	return five
}

// of returns a subtest's share of them.
func (i *instances) of(t *testing.T) *instances {
	return &instances{worldOf(t, nil), i.servers, i.admins, t.Name() + ":"}
}

// clients returns those of one process.
func (i *instances) clients(change ...func(*redis.Options)) (list []*redis.Client) {
	for _, server := range i.servers {
		list = append(list, testenv.Client(i, "redis://"+server.Addr(), change...))
	}
	return list
}

// process returns a Locker with new clients.
func (i *instances) process(config lock.Config) *lock.Locker {
	i.Helper()
	config.Backend = lock.Redlock{Clients: i.clients(), Prefix: i.prefix}
	return i.Locker(config)
}

func (i *instances) key() string { return i.prefix + "{a}" }

// has returns the instances that have the lock "a".
func (i *instances) has() (list []int) {
	i.Helper()
	for n, admin := range i.admins {
		if exists, err := admin.Exists(i.Context(), i.key()).Result(); err != nil {
			i.Fatal(err)
		} else if exists == 1 {
			list = append(list, n)
		}
	}
	return list
}

// set takes the lock "a" at some instances, as other programs would.
func (i *instances) set(where ...int) {
	i.Helper()
	for _, n := range where {
		must(i, i.admins[n].Set(i.Context(), i.key(), "1", time.Hour).Err())
	}
}

func (i *instances) remove(where ...int) {
	i.Helper()
	for _, n := range where {
		must(i, i.admins[n].Del(i.Context(), i.key()).Err())
	}
}

// wantKept waits until exactly these instances have the lock "a".
func (i *instances) wantKept(where ...int) {
	i.Helper()
	testenv.Eventually(i, fmt.Sprintf("instances %v to have the lock, and no others", where), func() bool {
		return fmt.Sprint(i.has()) == fmt.Sprint(where)
	})
}

// Five instances that no test stops, for tests with different prefixes.
func TestRedlock(t *testing.T) {
	t.Parallel()
	five := newInstances(t, 5)
	for name, test := range map[string]func(t *testing.T, five *instances){
		"acquire and release": redlockCycle, "minority": redlockMinority, "contenders": redlockContenders, "at once": redlockAtOnce, "loss": redlockLoss,
		"wake-up": redlockWakeUp, "twins": redlockTwins, "close": redlockClose,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, five.of(t))
		})
	}
}

// A lock is held at every instance until its release, and an error names the holder.
func redlockCycle(t *testing.T, five *instances) {
	ours, theirs := five.process(lock.Config{Holder: "till 1"}), five.process(lock.Config{})
	held := five.Acquire(ours, "a")
	five.wantKept(0, 1, 2, 3, 4)
	_, err := theirs.TryAcquire(t.Context(), "a")
	var told *lock.HeldError
	if !errors.As(err, &told) || told.Name != "a" || told.Holder != "till 1" || told.For < 0 || told.For > time.Minute || time.Since(told.Since).Abs() > time.Minute {
		t.Errorf("a lock that is held: %v, %+v", err, told)
	}
	must(t, lock.Extend(t.Context(), held))
	must(t, held.Release())
	must(t, held.Release())
	five.wantKept()
	must(t, five.Acquire(theirs, "a").Release())
}

// Two instances that another has taken do not matter, and three do; then what was had of the rest
// is given back.
func redlockMinority(t *testing.T, five *instances) {
	l := five.process(lock.Config{})
	five.set(1, 3)
	held := five.Acquire(l, "a")
	five.wantKept(0, 1, 2, 3, 4)
	must(t, lock.Extend(t.Context(), held))
	must(t, held.Release())
	five.wantKept(1, 3)
	five.set(4)
	_, err := l.TryAcquire(t.Context(), "a")
	if !errors.As(err, new(*lock.HeldError)) {
		t.Errorf("three of five are taken: %v", err)
	}
	five.wantKept(1, 3, 4)
}

// Contenders that divide the instances among themselves try again, one at a time has the lock, and
// all are served.
func redlockContenders(t *testing.T, five *instances) {
	var group sync.WaitGroup
	var within atomic.Int64
	start, n := make(chan struct{}), 0
	const processes, times = 6, 5
	for range processes {
		l := five.process(lock.Config{})
		group.Go(func() {
			<-start
			for range times {
				err := l.Do(t.Context(), "a", func(context.Context, *lock.Held) error {
					if within.Add(1) != 1 {
						t.Error("two have the lock")
					}
					n++ // the race detector looks as well
					within.Add(-1)
					return nil
				})
				if err != nil {
					t.Errorf("a contender: %v", err)
				}
			}
		})
	}
	close(start)
	group.Wait()
	if n != processes*times {
		t.Errorf("%d sections", n)
	}
	five.wantKept()
}

// Forty processes that have no connections yet contend for one name, with the default Timeout. Each
// of them is served.
func TestRedlockColdLockers(t *testing.T) {
	t.Parallel()
	five := newInstances(t, 5)
	var all []*lock.Locker
	for range 40 {
		// A machine that answers no request within the default Timeout serves no locker.
		l, err := lock.New(lock.Config{Backend: lock.Redlock{Clients: five.clients()}, TTL: 3 * patient, Timeout: patient})
		must(t, err)
		defer func() { must(t, l.Close()) }()
		all = append(all, l)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var group sync.WaitGroup
	for n, l := range all {
		group.Go(func() {
			held, err := l.Acquire(ctx, "a")
			if err != nil {
				t.Errorf("locker %d: %v", n, err)
				return
			}
			_ = held.Release() // a very busy machine takes more than Timeout
		})
	}
	group.Wait()
}

// Of concurrent attempts, one gets the lock: none returns a HeldError while the instances are only
// divided.
func redlockAtOnce(t *testing.T, five *instances) {
	var all []*lock.Locker
	for range 6 {
		all = append(all, five.process(lock.Config{}))
		must(t, five.Acquire(all[len(all)-1], "warm").Release())
	}
	for range 10 {
		var group sync.WaitGroup
		var had atomic.Int64
		start, done := make(chan struct{}), make(chan struct{})
		for _, l := range all {
			group.Go(func() {
				<-start
				held, err := l.TryAcquire(t.Context(), "a")
				if err == nil {
					had.Add(1)
					<-done
					err = held.Release()
				}
				if err != nil && !errors.As(err, new(*lock.HeldError)) {
					t.Errorf("one of those: %v", err)
				}
			})
		}
		close(start)
		testenv.Eventually(t, "one of them to have the lock", func() bool { return had.Load() == 1 })
		close(done)
		group.Wait()
		five.wantKept()
	}
}

// A lock that two instances have lost is still held. One that three have lost is lost, before its
// lease ends. No instance is retaken.
func redlockLoss(t *testing.T, five *instances) {
	held := five.Acquire(five.process(lock.Config{TTL: 5 * short}), "a")
	five.wantKept(0, 1, 2, 3, 4)
	five.remove(0, 1)
	must(t, lock.Extend(t.Context(), held))
	five.wantKept(2, 3, 4)
	five.remove(2)
	wantError(t, "extending it", lock.Extend(t.Context(), held), lock.ErrLost)
	five.wantKept(3, 4)
	<-held.Context().Done()
	wantError(t, "its context", context.Cause(held.Context()), lock.ErrLost)
	if text := context.Cause(held.Context()).Error(); !strings.Contains(text, "vanished") {
		t.Errorf("it says %q", text) // and not that its lease had ended
	}
	five.wantKept(3, 4)
	wantError(t, "its release", held.Release(), lock.ErrLost)
	five.wantKept()
}

// All waiters listen at one instance, where a release wakes one of them when the lock is free.
func redlockWakeUp(t *testing.T, five *instances) {
	held := five.Acquire(five.process(lock.Config{}), "a")
	five.wantKept(0, 1, 2, 3, 4)
	wake := five.key() + ":wake"
	pushed := func() (list []int) {
		for n, admin := range five.admins {
			if admin.LLen(t.Context(), wake).Val() > 0 {
				list = append(list, n)
			}
		}
		return list
	}
	must(t, held.Release())
	testenv.Eventually(t, "a wake-up at one instance", func() bool { return len(pushed()) == 1 })
	where := pushed()[0]
	// The lock is taken without a release: the waiting process would ask after an hour, or after a
	// wake-up.
	five.set(0, 1, 2, 3, 4)
	for _, admin := range five.admins {
		must(t, admin.Del(t.Context(), wake).Err())
	}
	l := five.process(lock.Config{})
	lock.NeverPoll(l)
	got := make(chan *lock.Held, 1)
	go func() {
		next, err := l.Acquire(t.Context(), "a")
		if err != nil {
			t.Errorf("a waiter: %v", err)
		}
		got <- next
	}()
	testenv.Eventually(t, "the waiter to listen there", func() bool { return fmt.Sprint(five.listens()) == fmt.Sprint([]int{where}) })
	five.remove(0, 1, 2, 3, 4)
	must(t, five.admins[where].RPush(t.Context(), wake, "1").Err())
	must(t, (<-got).Release())
}

// listens returns the instances at which waiters listen, once for each.
func (i *instances) listens() (list []int) {
	for n, admin := range i.admins {
		for line := range strings.Lines(admin.ClientList(i.Context()).Val()) {
			if strings.Contains(line, " cmd=blpop ") && strings.Contains(line, "flags=b") {
				list = append(list, n)
			}
		}
	}
	return list
}

// Processes that acquire a lock again as soon as they have released it take turns: when one of them
// has had it forty times, each of the others has had it at least ten times.
func TestRedlockTurns(t *testing.T) {
	t.Parallel()
	three := newInstances(t, 3)
	const processes, most, least = 8, 40, 10
	var had [processes]int // the holder of the lock counts
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	var group sync.WaitGroup
	for n := range processes {
		l := three.process(lock.Config{TTL: 3 * patient})
		lock.NeverPoll(l)
		group.Go(func() {
			for ctx.Err() == nil {
				held, err := l.Acquire(ctx, "a")
				if err != nil {
					continue // the end
				}
				for ctx.Err() == nil && len(three.listens()) < processes-1 {
					continue
				}
				if had[n]++; had[n] == most {
					cancel()
				}
				if err := held.Release(); err != nil {
					t.Errorf("a release: %v", err)
				}
			}
		})
	}
	group.Wait()
	if fewest := slices.Min(had[:]); fewest < least || !slices.Contains(had[:], most) {
		t.Errorf("the processes had the lock %v times", had)
	}
}

// Two clients of one server have one vote, and are reported.
func redlockTwins(t *testing.T, five *instances) {
	server := five.servers[0]
	clients := []*redis.Client{
		testenv.Client(t, "redis://"+server.Addr()),
		testenv.Client(t, fmt.Sprintf("redis://localhost:%d", server.Port())),
		testenv.Client(t, "unix://"+server.Socket()),
	}
	said := &locktest.Log{}
	l := five.Locker(lock.Config{Backend: lock.Redlock{Clients: clients, Prefix: five.prefix}, Logger: slog.New(slog.NewTextHandler(said, nil))})
	_, err := l.TryAcquire(t.Context(), "a")
	if err == nil || !strings.Contains(err.Error(), "are of the same server; give each instance one client") {
		t.Errorf("one server three times: %v", err)
	}
	if text := said.String(); strings.Count(text, "a Redlock has fewer instances than clients") != 1 {
		t.Errorf("the log says %q", text)
	}
	five.wantKept()
}

// Close waits for running requests, and releases nothing.
func redlockClose(t *testing.T, five *instances) {
	l := five.process(lock.Config{})
	held := five.Acquire(l, "a")
	must(t, l.Close())
	five.wantKept(0, 1, 2, 3, 4)
	wantError(t, "its context", context.Cause(held.Context()), lock.ErrClosed)
	if _, err := l.TryAcquire(t.Context(), "b"); !errors.Is(err, lock.ErrClosed) {
		t.Errorf("a closed locker: %v", err)
	}
	wantError(t, "a late release", held.Release(), lock.ErrClosed)
	five.wantKept()
}
