package zk_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	library "github.com/go-zookeeper/zk"

	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/lock"
	"github.com/unstale/unstale/lock/internal/locktest"
	"github.com/unstale/unstale/lock/zk"
)

// A lock belongs to its holder until the release, and an error names the holder. An attempt leaves
// nothing behind.
func TestZooKeeper(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ours, theirs := w.Locker(lock.Config{Holder: "till 1"}), w.Locker(lock.Config{})
	held := w.Acquire(ours, "a")
	changes := func() int32 {
		w.nodes("a") // which waits for running calls
		_, stat, err := w.admin.Exists(w.dir("a"))
		must(t, err)
		return stat.Cversion
	}
	before := changes()
	_, err := theirs.TryAcquire(t.Context(), "a")
	if now := changes(); now != before {
		t.Errorf("an attempt in vain made or removed %d nodes", now-before)
	}
	var told *lock.HeldError
	if !errors.As(err, &told) || told.Name != "a" || told.Holder != "till 1" || told.For < 0 || told.For > time.Minute || time.Since(told.Since).Abs() > time.Minute {
		t.Errorf("a lock that is held: %v, %+v", err, told)
	}
	w.wantNodes("a", 1)
	other, err := theirs.TryAcquire(t.Context(), "b")
	must(t, err)
	must(t, other.Release())
	must(t, w.extend(t.Context(), held))
	must(t, held.Release())
	must(t, held.Release())
	wantError(t, "its context", context.Cause(held.Context()), lock.ErrReleased)
	w.wantNodes("a", 0)
	again := w.Acquire(theirs, "a")
	must(t, again.Release())
}

// Of attempts that have all seen a free lock one gets it, and the others leave nothing behind.
func TestZooKeeperAttemptsAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const attempts = 4
	var all sync.WaitGroup
	all.Add(attempts)
	var winners, losers atomic.Int64
	var group sync.WaitGroup
	for range attempts {
		backend, first := w.backend, sync.Once{}
		var begun atomic.Bool
		backend.Dial = dialCreating(func() bool {
			if begun.Load() {
				first.Do(func() { all.Done(); all.Wait() })
			}
			return false
		})
		l := w.warm(w.Locker(lock.Config{Backend: backend}))
		begun.Store(true)
		group.Go(func() {
			_, err := l.TryAcquire(t.Context(), "a")
			switch {
			case err == nil:
				winners.Add(1)
			case errors.As(err, new(*lock.HeldError)):
				losers.Add(1)
			default:
				t.Errorf("an attempt: %v", err)
			}
		})
	}
	group.Wait()
	if winners.Load() != 1 || losers.Load() != attempts-1 {
		t.Errorf("%d have the lock, %d have not", winners.Load(), losers.Load())
	}
	testenv.Eventually(t, "the other nodes to go", func() bool { return len(w.nodes("a")) == 1 })
}

// Waiters of several processes get the lock in order of arrival. Each watches the previous one, and
// is the only one that does. A waiter that gives up leaves nothing behind, and wakes no process for
// good.
func TestZooKeeperOrder(t *testing.T) {
	t.Parallel()
	ensemble := testenv.OwnZooKeeper(t, 1, "")
	w, server := worldIn(t, ensemble, "/locks"), ensemble.Nodes[0]
	held := w.Acquire(w.Locker(lock.Config{Holder: "the first"}), "a")
	const waiters = 8
	type turn struct {
		waiter int
		held   *lock.Held
	}
	turns := make(chan turn, waiters)
	for i := range waiters {
		l := w.Locker(lock.Config{Holder: fmt.Sprint("waiter ", i)})
		go func() {
			next, err := l.Acquire(t.Context(), "a")
			if err != nil {
				t.Errorf("waiter %d: %v", i, err)
			}
			turns <- turn{i, next}
		}()
		testenv.Eventually(t, "the waiter to queue", func() bool { return len(w.nodes("a")) == i+2 })
	}
	ctx, giveUp := context.WithCancel(t.Context())
	gone := make(chan error)
	quitter := w.Locker(lock.Config{})
	go func() {
		_, err := quitter.Acquire(ctx, "a")
		gone <- err
	}()
	testenv.Eventually(t, "a watch of each waiter", func() bool { return figures(t, server)["zk_watch_count"] == fmt.Sprint(waiters+1) })
	giveUp()
	err := <-gone
	wantError(t, "giving up", err, context.Canceled)
	if told := (*lock.HeldError)(nil); !errors.As(err, &told) || told.Holder != "the first" {
		t.Errorf("it does not say who: %v", err)
	}
	testenv.Eventually(t, "the node of who gave up to go", func() bool { return len(w.nodes("a")) == waiters+1 })
	for i := range waiters {
		released := time.Now().Truncate(time.Millisecond)
		must(t, held.Release())
		next := <-turns
		if next.waiter != i || next.held == nil {
			t.Fatalf("turn %d is that of waiter %d", i, next.waiter)
		}
		_, err := quitter.TryAcquire(t.Context(), "a")
		if told := (*lock.HeldError)(nil); !errors.As(err, &told) || told.Holder != fmt.Sprint("waiter ", i) || told.Since.Before(released) {
			t.Errorf("turn %d: %v", i, err)
		}
		held = next.held
	}
	must(t, held.Release())
	w.wantNodes("a", 0)
	told := figures(t, server)
	if told["zk_sum_node_deleted_watch_count"] != fmt.Sprint(waiters+1) || told["zk_max_node_deleted_watch_count"] != "1" || told["zk_sum_node_children_watch_count"] != "0" {
		t.Errorf("nodes that went woke %s sessions, %s at a time at most, and the folder %s",
			told["zk_sum_node_deleted_watch_count"], told["zk_max_node_deleted_watch_count"], told["zk_sum_node_children_watch_count"])
	}
	received := func() int {
		n, err := strconv.Atoi(figures(t, server)["zk_packets_received"])
		must(t, err)
		return n
	}
	before := received()
	must(t, w.Acquire(quitter, "a").Release())
	if n := received() - before - 1; n != 3 { // mntr is one more
		t.Errorf("an acquisition and a release took %d requests", n)
	}
}

// Sentence 1 with ZooKeeper: guarded sections lose no update, though nodes go lost before and in
// transactions.
func TestZooKeeperGuardedRace(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	locktest.NewRace(w.World, w.lose).Guarded()
}

// A process that was frozen until its session had expired is refused by its own clock.
func TestZooKeeperFrozenHolder(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.AddMySQL("a")
	w.OutliveFrozenHolder()
}

// The context of a holder whose node is gone ends, and nothing takes the lock back.
func TestZooKeeperVanishedNode(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	held := w.Acquire(w.Locker(lock.Config{}), "a")
	if !w.lose("a") {
		t.Fatal("there is no node")
	}
	wantError(t, "an extension", w.extend(t.Context(), held), lock.ErrLost)
	wantError(t, "its release", held.Release(), lock.ErrLost)
	w.wantNodes("a", 0)
}

// A section that ignores its context loses the lock after TTL, although the session lives and no
// process has released it.
func TestZooKeeperStubbornSection(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l := w.warm(w.Locker(lock.Config{TTL: 2 * short, Logger: slog.New(slog.DiscardHandler)}))
	ctx, cancel := context.WithCancel(t.Context())
	err := l.Do(ctx, "a", func(ctx context.Context, held *lock.Held) error {
		cancel()
		next := w.Acquire(w.Locker(lock.Config{}), "a")
		wantError(t, "its context", context.Cause(held.Context()), lock.ErrLost)
		return next.Release()
	})
	wantError(t, "the section", err, lock.ErrLost)
}

// A holder that finds the token of another holder in MySQL gives up its node in ZooKeeper, even if
// it was frozen right after it got the lock, and has not extended it yet.
func TestZooKeeperFrozenAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.AddMySQL("a")
	l := w.warm(w.Locker(lock.Config{Margin: time.Millisecond}))
	held := w.Acquire(l, "a")
	w.SQL("UPDATE cache_outbox_locks SET token = REVERSE(token) WHERE name = 'a'")
	err := held.InTx(t.Context(), w.Env.DB, func(*sql.Tx) error { return nil })
	wantError(t, "a section", err, lock.ErrLost)
	next := w.Acquire(w.Locker(lock.Config{}), "a")
	wantError(t, "its release", held.Release(), lock.ErrLost)
	must(t, next.Release())
}

// Names are data: none becomes a path, and each is another lock.
func TestZooKeeperNames(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	names := []string{"/", "a/b", "a", "a%2Fb", ".", "..", "../a", "\x00", "\xff\xfe", "\n", "é", "zookeeper", " ", strings.Repeat("/", lock.MaxName)}
	l := w.Locker(lock.Config{})
	for _, name := range names {
		w.Acquire(l, name)
	}
	_, err := w.admin.Sync(w.root) // its server may be behind
	must(t, err)
	nodes, _, err := w.admin.Children(w.root)
	must(t, err)
	for i, node := range nodes {
		nodes[i], err = url.PathUnescape(node)
		must(t, err)
	}
	slices.Sort(names)
	slices.Sort(nodes)
	if !slices.Equal(names, nodes) {
		t.Errorf("the locks are %q", nodes)
	}
}

// Close leaves no node, held or queued.
func TestZooKeeperClose(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l := w.Locker(lock.Config{})
	held := w.Acquire(l, "a")
	var waiter sync.WaitGroup
	waiter.Go(func() {
		_, err := l.Acquire(t.Context(), "a")
		wantError(t, "waiting", err, lock.ErrClosed)
	})
	testenv.Eventually(t, "the waiter to queue", func() bool { return len(w.nodes("a")) == 2 })
	must(t, l.Close())
	w.wantNodes("a", 0)
	waiter.Wait()
	wantError(t, "the lock", context.Cause(held.Context()), lock.ErrClosed)
	_, err := l.TryAcquire(t.Context(), "b")
	wantError(t, "an attempt", err, lock.ErrClosed)
}

// With a User, other accounts have no access.
func TestZooKeeperAccount(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	anybody := w.backend
	account := anybody
	account.User, account.Password = "shop", "change:me-5"
	held := w.Acquire(w.Locker(lock.Config{Backend: account}), "a")
	_, err := w.Locker(lock.Config{Backend: anybody}).TryAcquire(t.Context(), "a")
	wantError(t, "somebody else", err, library.ErrNoAuth)
	if err == nil || !strings.Contains(err.Error(), "give the account all permissions on "+w.root) {
		t.Errorf("it says %v", err)
	}
	_, err = w.Locker(lock.Config{Backend: account}).TryAcquire(t.Context(), "a")
	if told := (*lock.HeldError)(nil); !errors.As(err, &told) {
		t.Errorf("the same account: %v", err)
	}
	must(t, held.Release())
}

// A lock that another recipe has taken in the same place is respected.
func TestZooKeeperForeignNode(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l := w.Locker(lock.Config{})
	must(t, w.Acquire(l, "a").Release()) // makes the path
	theirs, err := w.admin.CreateProtectedEphemeralSequential(w.dir("a")+"/lock-", nil, library.WorldACL(library.PermAll))
	must(t, err)
	_, err = l.TryAcquire(t.Context(), "a")
	if err == nil || err.Error() != `acquire: lock "a" is held by a client that does not use this package` {
		t.Errorf("got %v", err)
	}
	must(t, w.admin.Delete(theirs, -1))
	w.Acquire(l, "a")
}

// The numbers of nodes run round after 2^31.
func TestZooKeeperPosition(t *testing.T) {
	t.Parallel()
	name := func(i int, sequence string) string { return fmt.Sprintf("%032x-%s", i, sequence) }
	a, b, c := name(7, "2147483646"), name(3, "2147483647"), name(5, "-2147483648")
	nodes := []string{c, "other", b, a}
	for _, test := range []struct {
		ours, first, before string
		found               bool
	}{{a, a, "", true}, {b, a, a, true}, {c, a, b, true}, {name(1, "-2147483647"), a, c, false}} {
		first, before, found := zk.Position(nodes, test.ours)
		if first != test.first || before != test.before || found != test.found {
			t.Errorf("of %s: %s, %s, %t", test.ours, first, before, found)
		}
	}
	if first, _, _ := zk.Position([]string{name(2, "0000000011"), name(1, "0000000012"), "_c_x-lock-0000000010"}, ""); first != "_c_x-lock-0000000010" {
		t.Errorf("the first one is %s", first)
	}
}
