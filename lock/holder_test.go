package lock_test

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sys/unix"

	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/lock"
)

// holderVariable makes this test's program a holder of a lock, which the variable names: see startHolder.
const holderVariable = "UNSTALE_TEST_HOLDER"

// A holder is another process, which holds the lock "a" and waits for orders.
type holder struct {
	testing.TB
	cmd    *exec.Cmd
	orders io.WriteCloser
	says   *bufio.Scanner
}

// startHolder starts a process that has the lock "a" of w, until the test ends.
func (w *world) startHolder() *holder {
	w.Helper()
	theirOrders, orders, err := os.Pipe()
	must(w, err)
	says, theirs, err := os.Pipe()
	must(w, err)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), holderVariable+"="+w.place()+" "+w.env.DSN)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = theirOrders, theirs, os.Stderr
	ended, err := servers.Start(cmd)
	must(w, err)
	must(w, theirOrders.Close())
	must(w, theirs.Close())
	h := &holder{w.TB, cmd, orders, bufio.NewScanner(says)}
	w.Cleanup(func() {
		h.thaw()
		_ = orders.Close() // which ends it
		must(w, <-ended)
		_ = says.Close()
	})
	h.wantSaid("held")
	return h
}

// place tells another process where the locks are.
func (w *world) place() string {
	if z, ok := w.backend.(lock.ZooKeeper); ok {
		return strings.Join(z.Servers, ",") + z.Root
	}
	return w.addr
}

// backendAt is what place told.
func backendAt(place string) lock.Backend {
	if servers, root, ok := strings.Cut(place, "/"); ok {
		return lock.ZooKeeper{Servers: strings.Split(servers, ","), Root: "/" + root}
	}
	return lock.Redis{Client: redis.NewClient(&redis.Options{Addr: place, ContextTimeoutEnabled: true})}
}

func (h *holder) order(text string) {
	h.Helper()
	_, err := fmt.Fprintln(h.orders, text)
	must(h, err)
}

func (h *holder) wantSaid(wanted string) {
	h.Helper()
	if !h.says.Scan() || h.says.Text() != wanted {
		h.Fatalf("the holder says %q, wanted %q", h.says.Text(), wanted)
	}
}

// freeze returns when every thread has stopped.
func (h *holder) freeze() {
	h.Helper()
	must(h, h.cmd.Process.Signal(syscall.SIGSTOP))
	err := unix.Waitid(unix.P_PID, h.cmd.Process.Pid, nil, unix.WSTOPPED|unix.WNOWAIT, nil)
	for errors.Is(err, unix.EINTR) {
		err = unix.Waitid(unix.P_PID, h.cmd.Process.Pid, nil, unix.WSTOPPED|unix.WNOWAIT, nil)
	}
	must(h, err)
}

func (h *holder) thaw() { _ = h.cmd.Process.Signal(syscall.SIGCONT) }

// countingPool counts how often a connection was asked for.
type countingPool struct {
	*sql.DB
	asked int
}

func (p *countingPool) Conn(ctx context.Context) (*sql.Conn, error) {
	p.asked++
	return p.DB.Conn(ctx)
}

// holdOnOrder is the other process.
func holdOnOrder(place string) error {
	backend, dsn, _ := strings.Cut(place, " ")
	config, err := mysql.ParseDSN(dsn)
	if err != nil {
		return err
	}
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		return err
	}
	ttl := short
	if strings.Contains(backend, "/") {
		ttl = 2 * short // three servers on a busy machine are slower than one
	}
	l, err := lock.New(lock.Config{Backend: backendAt(backend), MySQL: config, TTL: ttl, Timeout: ttl / 3, Holder: "another process"})
	if err != nil {
		return err
	}
	ctx := context.Background()
	held, err := l.Acquire(ctx, "a")
	for tries := 0; errors.Is(err, context.DeadlineExceeded) && tries < 20; tries++ { // it is slow to open its session
		held, err = l.Acquire(ctx, "a")
	}
	if err != nil {
		return err
	}
	fmt.Println("held")
	orders, pool := bufio.NewScanner(os.Stdin), &countingPool{DB: db}
	var many []*lock.Held
	for orders.Scan() {
		var n int
		if asked, _ := fmt.Sscanf(orders.Text(), "acquire %d", &n); asked == 1 {
			if many, err = acquireMany(ctx, l, 0, n); err != nil {
				return err
			}
			fmt.Println("lost 0, asked 0")
			continue
		}
		switch orders.Text() {
		case "section of each":
			lost, err := sections(ctx, pool, many)
			if err != nil {
				return err
			}
			fmt.Printf("lost %d, asked %d\n", lost, pool.asked)
			continue
		case "add":
			err = held.InTx(ctx, pool, func(tx *sql.Tx) error { return add(ctx, tx, "a") })
		case "pause": // a frozen process never asks for the next order by itself
			err = held.InTx(ctx, pool, func(tx *sql.Tx) error {
				if err := add(ctx, tx, "a"); err != nil {
					return err
				}
				fmt.Println("paused")
				orders.Scan()
				return nil
			})
		}
		fmt.Printf("lost %t, asked %d\n", errors.Is(err, lock.ErrLost), pool.asked)
	}
	return nil
}

// A process that was frozen beyond its lease is refused by its own clock, before it asks MySQL.
func TestFrozenHolder(t *testing.T) {
	t.Parallel()
	withMySQL(t, "a").outliveFrozenHolder()
}

func (w *world) outliveFrozenHolder() {
	w.Helper()
	t := w.TB
	h := w.startHolder()
	h.order("add")
	h.wantSaid("lost false, asked 1")
	h.freeze()
	held := w.acquire(w.locker(lock.Config{}), "a")
	must(t, held.InTx(t.Context(), w.env.DB, func(tx *sql.Tx) error { return add(t.Context(), tx, "a") }))
	must(t, held.Release()) // nobody has it: the token alone would be enough to refuse
	h.order("add")
	h.thaw()
	h.wantSaid("lost true, asked 1")
	if n := w.counter("a"); n != 2 {
		t.Errorf("the counter is %d", n)
	}
}

// A process that is frozen in its transaction keeps others out until the server ends its session, soon after its lease, and
// commits nothing afterwards.
func TestFrozenInTransaction(t *testing.T) {
	t.Parallel()
	w := withMySQL(t, "a")
	h := w.startHolder()
	h.order("pause")
	h.wantSaid("paused")
	h.freeze()
	held := w.acquire(w.locker(lock.Config{}), "a") // its mint waits
	must(t, held.InTx(t.Context(), w.env.DB, func(tx *sql.Tx) error { return add(t.Context(), tx, "a") }))
	must(t, held.Release())
	h.order("go on")
	h.thaw()
	h.wantSaid("lost true, asked 1")
	if n := w.counter("a"); n != 1 {
		t.Errorf("the counter is %d", n)
	}
}
