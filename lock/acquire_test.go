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
	"github.com/unstale/unstale/lock/internal/locktest"
)

const key = "lock:{a}"

// A lock belongs to its holder until the release, and an error names the holder.
func TestAcquireAndRelease(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ours, theirs := w.Locker(lock.Config{Holder: "till 1"}), w.Locker(lock.Config{})
	held := w.Acquire(ours, "a")
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
	other := w.Acquire(theirs, "b")
	must(t, other.Release())
	must(t, held.Release())
	must(t, held.Release())
	wantError(t, "its context", context.Cause(held.Context()), lock.ErrReleased)
	if n := w.redis.Exists(t.Context(), key).Val(); n != 0 {
		t.Error("the key is there after the release")
	}
	again := w.Acquire(theirs, "a")
	must(t, again.Release())
}

// A key that another program has set counts as a lock, and errors show it.
func TestForeignLock(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	must(t, w.redis.Set(t.Context(), key, "1", time.Hour).Err())
	_, err := w.Locker(lock.Config{}).TryAcquire(t.Context(), "a")
	if err == nil || err.Error() != `acquire: lock "a" is held by a client that does not use this package` {
		t.Errorf("got %v", err)
	}
}

// Waiters wait until their contexts end, and their errors name the holder.
func TestAcquireGivesUp(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l := w.Locker(lock.Config{Holder: "till 1"})
	w.Acquire(l, "a")
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
	l := w.Locker(lock.Config{})
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := l.TryAcquire(ended, "a")
	wantError(t, "an attempt", err, context.Canceled)
	_, err = l.Acquire(ended, "a")
	wantError(t, "an acquisition", err, context.Canceled)
	must(t, l.Close()) // which waits for background work
	if n := w.calls("evalsha"); n != 0 {
		t.Errorf("Redis was asked %d times", n)
	}
}

// A release wakes waiters of other processes one by one, and all of them are served: the lease
// never ends here.
func TestWaitersAreWoken(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	held := w.Acquire(w.Locker(lock.Config{}), "a")
	var group sync.WaitGroup
	for range 4 { // processes
		l := w.Locker(lock.Config{})
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

// A wake-up reaches a waiter that would not ask by itself before its BLPOP ends, which takes a
// second.
func TestWakeUp(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ours, theirs := w.Locker(lock.Config{}), w.Locker(lock.Config{})
	lock.NeverPoll(theirs)
	var waited time.Duration
	const times = 10
	for range times {
		held, got := w.Acquire(ours, "a"), make(chan *lock.Held, 1)
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

// A release wakes a waiter if there was one, and each waiter wakes the next one. Without waiters it
// leaves nothing in Redis.
func TestReleaseWakesWaiters(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ours, theirs := w.Locker(lock.Config{}), w.Locker(lock.Config{})
	wantWoken := func(what string, wanted int64) {
		t.Helper()
		if n := w.calls("rpush"); n != wanted {
			t.Errorf("%s: %d wake-ups, wanted %d", what, n, wanted)
		}
	}
	held := w.Acquire(ours, "a")
	if _, err := theirs.TryAcquire(t.Context(), "a"); !errors.As(err, new(*lock.HeldError)) {
		t.Errorf("an attempt: %v", err)
	}
	must(t, held.Release())
	wantWoken("nobody waits", 0)
	held = w.Acquire(ours, "a")
	var group sync.WaitGroup
	const waiters = 3
	for i := range waiters { // one in each process
		l := w.Locker(lock.Config{Holder: fmt.Sprint("till ", i)})
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

// A wake-up whose waiter is gone is passed on.
func TestWakeUpIsPassedOn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	held := w.Acquire(w.Locker(lock.Config{}), "a")
	ctx, giveUp := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	waiting := w.Locker(lock.Config{})
	go func() {
		_, err := waiting.Acquire(ctx, "a")
		gone <- err
	}()
	testenv.Eventually(t, "the waiter to listen", func() bool { return w.blocked() == 1 })
	giveUp()
	wantError(t, "giving up", <-gone, context.Canceled)
	// either the BLPOP of the waiter that gave up takes it, or its timeout had ended
	must(t, held.Release())
	must(t, waiting.Close())
	if n := w.redis.LLen(t.Context(), key+":wake").Val(); n != 1 {
		t.Errorf("%d wake-ups are left for the next waiter", n)
	}
}

// A lock is extended while it is held, and expires when its holder is gone.
func TestExtendAndExpire(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ours, theirs := w.Locker(lock.Config{TTL: short}), w.Locker(lock.Config{TTL: short})
	held := w.Acquire(ours, "a")
	began := time.Now()
	testenv.Eventually(t, "two extensions and more", func() bool { return time.Since(began) > short+short/6 })
	must(t, context.Cause(held.Context()))
	must(t, ours.Close()) // as if the process had gone
	wantError(t, "a closed locker's lock", context.Cause(held.Context()), lock.ErrClosed)
	_, err := ours.TryAcquire(t.Context(), "b")
	if err == nil {
		t.Error("a closed locker acquires")
	}
	next := w.Acquire(theirs, "a")
	wantError(t, "releasing what was not ours any more", held.Release(), lock.ErrClosed)
	must(t, next.Release())
}

// The context of a holder whose key is gone ends before the deadline, and nothing takes the lock
// back.
func TestVanishedKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	held := w.Acquire(w.Locker(lock.Config{TTL: 9 * time.Second}), "a")
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
	l := w.Locker(lock.Config{})
	held := w.Acquire(l, "a")
	must(t, w.redis.Del(t.Context(), key).Err())
	next := w.Acquire(w.Locker(lock.Config{}), "a")
	wantError(t, "a release", held.Release(), lock.ErrLost)
	_, err := l.TryAcquire(t.Context(), "a")
	if told := (*lock.HeldError)(nil); !errors.As(err, &told) {
		t.Errorf("the lock of another holder: %v", err)
	}
	must(t, next.Release())
}

// An unavailable Redis costs an error, and ends the context of a holder.
func TestRedisIsAway(t *testing.T) {
	t.Parallel()
	server := testenv.OwnRedis(t)
	w := worldAt(t, server.Addr())
	l := w.Locker(lock.Config{TTL: short})
	held := w.Acquire(l, "a")
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
	w := &locktest.World{TB: t}
	l := w.Locker(lock.Config{Backend: lock.Redis{Client: client}})
	for _, name := range strings.Split("a b c d e f g h", " ") {
		held := w.Acquire(l, name)
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
