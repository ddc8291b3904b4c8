package locktest

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
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/go-sql-driver/mysql"
	"golang.org/x/sys/unix"

	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/lock"
)

// holderVariable makes this test's program a holder of a lock, which the variable names: see
// World.StartHolder.
const holderVariable = "UNSTALE_TEST_HOLDER"

// A Holder is another process, which holds the lock "a" and waits for orders.
type Holder struct {
	testing.TB
	cmd    *exec.Cmd
	orders io.WriteCloser
	says   *bufio.Scanner
}

// StartHolder starts a process that has the lock "a" of w, until the test ends.
func (w *World) StartHolder() *Holder {
	w.Helper()
	theirOrders, orders, err := os.Pipe()
	Must(w, err)
	says, theirs, err := os.Pipe()
	Must(w, err)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), holderVariable+"="+w.Place+" "+w.Env.DSN)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = theirOrders, theirs, os.Stderr
	ended, err := servers.Start(cmd)
	Must(w, err)
	Must(w, theirOrders.Close())
	Must(w, theirs.Close())
	h := &Holder{w.TB, cmd, orders, bufio.NewScanner(says)}
	w.Cleanup(func() {
		h.Thaw()
		_ = orders.Close() // which ends it
		Must(w, <-ended)
		_ = says.Close()
	})
	h.WantSaid("held")
	return h
}

// Order gives the holder an order.
func (h *Holder) Order(text string) {
	h.Helper()
	_, err := fmt.Fprintln(h.orders, text)
	Must(h, err)
}

// WantSaid fails the test unless the next line of the holder is the one wanted.
func (h *Holder) WantSaid(wanted string) {
	h.Helper()
	if !h.says.Scan() || h.says.Text() != wanted {
		h.Fatalf("the holder says %q, wanted %q", h.says.Text(), wanted)
	}
}

// Freeze returns when every thread has stopped.
func (h *Holder) Freeze() {
	h.Helper()
	Must(h, h.cmd.Process.Signal(syscall.SIGSTOP))
	err := unix.Waitid(unix.P_PID, h.cmd.Process.Pid, nil, unix.WSTOPPED|unix.WNOWAIT, nil)
	for errors.Is(err, unix.EINTR) {
		err = unix.Waitid(unix.P_PID, h.cmd.Process.Pid, nil, unix.WSTOPPED|unix.WNOWAIT, nil)
	}
	Must(h, err)
}

// Thaw has the holder go on.
func (h *Holder) Thaw() { _ = h.cmd.Process.Signal(syscall.SIGCONT) }

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
func holdOnOrder(name string, configOf func(place string) lock.Config) error {
	place, dsn, _ := strings.Cut(name, " ")
	config := configOf(place)
	parsed, err := mysql.ParseDSN(dsn)
	if err != nil {
		return err
	}
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		return err
	}
	config.MySQL, config.Timeout, config.Holder = parsed, config.TTL/3, "another process"
	l, err := lock.New(config)
	if err != nil {
		return err
	}
	ctx := context.Background()
	held, err := l.Acquire(ctx, "a")
	// it is slow to open its session
	for tries := 0; errors.Is(err, context.DeadlineExceeded) && tries < 20; tries++ {
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
			if many, err = AcquireMany(ctx, l, 0, n); err != nil {
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
			err = held.InTx(ctx, pool, func(tx *sql.Tx) error { return Add(ctx, tx, "a") })
		case "pause": // a frozen process never asks for the next order by itself
			err = held.InTx(ctx, pool, func(tx *sql.Tx) error {
				if err := Add(ctx, tx, "a"); err != nil {
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

// OutliveFrozenHolder fails the test unless a process that was frozen beyond its lease is refused
// by its own clock, before it asks MySQL.
func (w *World) OutliveFrozenHolder() {
	w.Helper()
	t := w.TB
	h := w.StartHolder()
	h.Order("add")
	h.WantSaid("lost false, asked 1")
	h.Freeze()
	held := w.Acquire(w.Locker(lock.Config{}), "a")
	Must(t, held.InTx(t.Context(), w.Env.DB, func(tx *sql.Tx) error { return Add(t.Context(), tx, "a") }))
	Must(t, held.Release()) // nobody has it: the token alone would be enough to refuse
	h.Order("add")
	h.Thaw()
	h.WantSaid("lost true, asked 1")
	if n := w.Counter("a"); n != 2 {
		t.Errorf("the counter is %d", n)
	}
}

// AcquireMany acquires n locks, several at once, that have numbers from first for names.
func AcquireMany(ctx context.Context, l *lock.Locker, first, n int) ([]*lock.Held, error) {
	all, errs := make([]*lock.Held, n), make([]error, n)
	var group sync.WaitGroup
	var next atomic.Int64
	for range 8 {
		group.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				all[i], errs[i] = l.Acquire(ctx, fmt.Sprint(first+i))
			}
		})
	}
	group.Wait()
	return all, errors.Join(errs...)
}

// sections has a section of each lock, and reports how many were refused because the lock was lost.
func sections(ctx context.Context, pool lock.Pool, all []*lock.Held) (lost int, err error) {
	for _, held := range all {
		err := held.InTx(ctx, pool, func(*sql.Tx) error { return nil })
		switch {
		case errors.Is(err, lock.ErrLost):
			lost++
		case err != nil:
			return lost, err
		}
	}
	return lost, nil
}
