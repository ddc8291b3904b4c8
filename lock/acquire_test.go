package lock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/lock"
)

const key = "lock:{a}"

// A lock is one's until it is released, and an error tells whose.
func TestAcquireAndRelease(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ours, theirs := w.locker(lock.Config{Holder: "till 1"}), w.locker(lock.Config{})
	held := w.acquire(ours, "a")
	if held.Name() != "a" || held.Context().Err() != nil {
		t.Errorf("held %q, %v", held.Name(), held.Context().Err())
	}
	_, err := theirs.TryAcquire(t.Context(), "a")
	var told *lock.HeldError
	if !errors.As(err, &told) || told.Name != "a" || told.Holder != "till 1" || told.For < 0 || told.For > time.Minute || time.Since(told.Since).Abs() > time.Minute {
		t.Errorf("a lock that is held: %v, %+v", err, told)
	}
	if text := err.Error(); !strings.HasPrefix(text, `acquire: lock "a" is held by till 1 for `) || !strings.Contains(text, ", since 20") {
		t.Errorf("it says %q", text)
	}
	other := w.acquire(theirs, "b")
	must(t, other.Release())
	must(t, held.Release())
	must(t, held.Release())
	wantError(t, "its context", context.Cause(held.Context()), lock.ErrReleased)
	if n := w.redis.Exists(t.Context(), key).Val(); n != 0 {
		t.Error("the key is there after the release")
	}
	again := w.acquire(theirs, "a")
	must(t, again.Release())
}

// What another program has set is respected, and told.
func TestForeignLock(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	must(t, w.redis.Set(t.Context(), key, "1", time.Hour).Err())
	_, err := w.locker(lock.Config{}).TryAcquire(t.Context(), "a")
	if err == nil || err.Error() != `acquire: lock "a" is held by somebody who does not use this package` {
		t.Errorf("got %v", err)
	}
}

// Waiters wait for as long as their contexts last, and say who held the lock.
func TestAcquireGivesUp(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l := w.locker(lock.Config{Holder: "till 1"})
	w.acquire(l, "a")
	var group sync.WaitGroup
	for range 3 { // one at the front, two behind
		group.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			_, err := l.Acquire(ctx, "a")
			var told *lock.HeldError
			wantError(t, "waiting", err, context.DeadlineExceeded)
			if !errors.As(err, &told) || told.Holder != "till 1" {
				t.Errorf("it does not say who: %v", err)
			}
		})
	}
	group.Wait()
}

// A context that is over costs no request.
func TestEndedContext(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l := w.locker(lock.Config{})
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := l.TryAcquire(ended, "a")
	wantError(t, "an attempt", err, context.Canceled)
	_, err = l.Acquire(ended, "a")
	wantError(t, "an acquisition", err, context.Canceled)
	must(t, l.Close()) // which waits for what goes on
	if n := w.calls("evalsha"); n != 0 {
		t.Errorf("Redis was asked %d times", n)
	}
}

// A release wakes waiters of other processes one by one, and all of them are served: the lease never ends here.
func TestWaitersAreWoken(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	held := w.acquire(w.locker(lock.Config{}), "a")
	var group sync.WaitGroup
	for range 4 { // processes
		l := w.locker(lock.Config{})
		for range 5 {
			group.Go(func() {
				err := l.Do(t.Context(), "a", func(context.Context, *lock.Held) error { return nil })
				if err != nil {
					t.Errorf("a waiter: %v", err)
				}
			})
		}
	}
	testenv.Eventually(t, "a waiter of each process to listen", func() bool {
		return w.blocked() == 4
	})
	must(t, held.Release())
	group.Wait()
}

func (w *world) blocked() int {
	n := 0
	for line := range strings.Lines(w.redis.ClientList(w.Context()).Val()) {
		if strings.Contains(line, " cmd=blpop ") && strings.Contains(line, "flags=b") {
			n++
		}
	}
	return n
}

// A wake-up reaches a waiter that would not ask by itself before its BLPOP ends, which takes a second.
func TestWakeUp(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ours, theirs := w.locker(lock.Config{}), w.locker(lock.Config{})
	lock.NeverPoll(theirs)
	var waited time.Duration
	const times = 10
	for range times {
		held, got := w.acquire(ours, "a"), make(chan *lock.Held, 1)
		go func() {
			next, err := theirs.Acquire(t.Context(), "a")
			if err != nil {
				t.Errorf("a waiter: %v", err)
			}
			got <- next
		}()
		testenv.Eventually(t, "the waiter to listen", func() bool { return w.blocked() == 1 })
		began := time.Now()
		must(t, held.Release())
		next := <-got
		waited += time.Since(began)
		must(t, next.Release())
	}
	if waited > times*time.Second/2 {
		t.Errorf("%d hand-overs took %v", times, waited)
	}
}

// A release wakes if somebody has waited, and each of those who have waited wakes the next one. Where nobody waits it leaves nothing.
func TestReleaseWakesWaiters(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ours, theirs := w.locker(lock.Config{}), w.locker(lock.Config{})
	wantWoken := func(what string, wanted int64) {
		t.Helper()
		if n := w.calls("rpush"); n != wanted {
			t.Errorf("%s: %d wake-ups, wanted %d", what, n, wanted)
		}
	}
	held := w.acquire(ours, "a")
	if _, err := theirs.TryAcquire(t.Context(), "a"); !errors.As(err, new(*lock.HeldError)) {
		t.Errorf("an attempt: %v", err)
	}
	must(t, held.Release())
	wantWoken("nobody waits", 0)
	held = w.acquire(ours, "a")
	var group sync.WaitGroup
	const waiters = 3
	for i := range waiters { // one in each process
		l := w.locker(lock.Config{Holder: fmt.Sprint("till ", i)})
		lock.NeverPoll(l)
		group.Go(func() {
			err := l.Do(t.Context(), "a", func(context.Context, *lock.Held) error { return nil })
			if err != nil {
				t.Errorf("a waiter: %v", err)
			}
		})
	}
	testenv.Eventually(t, "all to listen", func() bool { return w.blocked() == waiters })
	_, err := theirs.TryAcquire(t.Context(), "a")
	if told := (*lock.HeldError)(nil); !errors.As(err, &told) || told.Holder == "" || told.For < 0 || told.For > time.Minute {
		t.Errorf("a lock for which others wait: %v", err)
	}
	must(t, held.Release())
	group.Wait()
	wantWoken("waiters, one after another", 1+waiters)
}

// A wake-up for which nobody waits any more is passed on.
func TestWakeUpIsPassedOn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	held := w.acquire(w.locker(lock.Config{}), "a")
	ctx, giveUp := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	waiting := w.locker(lock.Config{})
	go func() {
		_, err := waiting.Acquire(ctx, "a")
		gone <- err
	}()
	testenv.Eventually(t, "the waiter to listen", func() bool { return w.blocked() == 1 })
	giveUp()
	wantError(t, "giving up", <-gone, context.Canceled)
	must(t, held.Release()) // either the BLPOP of the one who gave up takes it, or its time was over
	must(t, waiting.Close())
	if n := w.redis.LLen(t.Context(), key+":wake").Val(); n != 1 {
		t.Errorf("%d wake-ups are left for the next waiter", n)
	}
}

// A lock is extended as long as it is held, and ends by itself when its holder is gone.
func TestExtendAndExpire(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ours, theirs := w.locker(lock.Config{TTL: short}), w.locker(lock.Config{TTL: short})
	held := w.acquire(ours, "a")
	began := time.Now()
	testenv.Eventually(t, "two extensions and more", func() bool { return time.Since(began) > short+short/6 })
	must(t, context.Cause(held.Context()))
	must(t, ours.Close()) // as if the process had gone
	wantError(t, "a closed locker's lock", context.Cause(held.Context()), lock.ErrClosed)
	_, err := ours.TryAcquire(t.Context(), "b")
	if err == nil {
		t.Error("a closed locker acquires")
	}
	next := w.acquire(theirs, "a")
	wantError(t, "releasing what was not ours any more", held.Release(), lock.ErrClosed)
	must(t, next.Release())
}

// The context of a holder whose key is gone ends before the deadline, and nothing takes the lock back.
func TestVanishedKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	held := w.acquire(w.locker(lock.Config{TTL: 9 * time.Second}), "a")
	began := time.Now()
	must(t, w.redis.Del(t.Context(), key).Err())
	<-held.Context().Done()
	if took := time.Since(began); took > 8*time.Second {
		t.Errorf("it took %v", took)
	}
	wantError(t, "its context", context.Cause(held.Context()), lock.ErrLost)
	if text := context.Cause(held.Context()).Error(); !strings.Contains(text, "vanished") {
		t.Errorf("it says %q", text)
	}
	if n := w.redis.Exists(t.Context(), key).Val(); n != 0 {
		t.Error("it was taken back")
	}
	wantError(t, "its release", held.Release(), lock.ErrLost)
}

// Another's lock is neither extended nor released.
func TestAnothersLock(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l := w.locker(lock.Config{})
	held := w.acquire(l, "a")
	must(t, w.redis.Del(t.Context(), key).Err())
	next := w.acquire(w.locker(lock.Config{}), "a")
	wantError(t, "a release", held.Release(), lock.ErrLost)
	_, err := l.TryAcquire(t.Context(), "a")
	if told := (*lock.HeldError)(nil); !errors.As(err, &told) {
		t.Errorf("the lock of another holder: %v", err)
	}
	must(t, next.Release())
}

// A Redis that is away costs an error, and a holder its context.
func TestRedisIsAway(t *testing.T) {
	t.Parallel()
	server := testenv.OwnRedis(t)
	w := &world{TB: t, addr: server.Addr(), redis: clientOf(t, server.Addr())}
	l := w.locker(lock.Config{TTL: short})
	held := w.acquire(l, "a")
	must(t, server.Kill())
	<-held.Context().Done()
	wantError(t, "its context", context.Cause(held.Context()), lock.ErrLost)
	_, err := l.TryAcquire(t.Context(), "b")
	if err == nil || errors.As(err, new(*lock.HeldError)) {
		t.Errorf("an acquisition: %v", err)
	}
}

// Redis Cluster keeps a lock and its wake list on one node, and each node has its own clock.
func TestCluster(t *testing.T) {
	t.Parallel()
	cluster := testenv.OwnCluster(t, 3, false)
	options := *cluster.Client.Options()
	options.ContextTimeoutEnabled = true
	client := redis.NewClusterClient(&options)
	defer client.Close()
	w := &world{TB: t}
	l := w.locker(lock.Config{Backend: lock.Redis{Client: client}})
	for _, name := range strings.Split("a b c d e f g h", " ") {
		held := w.acquire(l, name)
		got := make(chan *lock.Held, 1)
		go func() {
			next, err := l.Acquire(t.Context(), name)
			if err != nil {
				t.Errorf("a waiter: %v", err)
			}
			got <- next
		}()
		must(t, held.Release())
		must(t, (<-got).Release())
	}
}
