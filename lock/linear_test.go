package lock_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/unstale/unstale/lock"
)

// A request is an operation of a client on a register: to read it, or to write a value and return
// the previous one.
type request struct {
	swap bool
	put  int
}

// unknown is the answer of a swap that got none, and may have happened.
const unknown = -1

// register is how a register answers clients one after another.
var register = porcupine.Model{
	Init: func() any { return 0 },
	Step: func(state, input, output any) (bool, any) {
		in, was, now := input.(request), output.(int), state.(int)
		if !in.swap {
			return was == now, now
		}
		return was == now || was == unknown, in.put
	},
}

// played is the number of histories in the test of guarded sections.
var played = flag.Int("histories", 12, "how many short histories of a register are checked")

// A history is the operations of clients on the register of a name. Times are numbers in the order
// of events.
type history struct {
	*world
	name    string
	lockers []*lock.Locker // of processes
	bare    bool           // without Guard

	clock atomic.Int64
	mu    sync.Mutex
	done  []porcupine.Operation
	lost  int
}

// play runs requests of clients. Some of them lose the lock meanwhile. Refused requests are left
// out: they must have done nothing.
func (h *history) play(clients, requests int) {
	var group sync.WaitGroup
	for client := range clients {
		group.Go(func() {
			for i := range requests {
				h.request(client, request{swap: rand.N(3) > 0, put: 1 + client*requests + i})
			}
		})
	}
	group.Wait()
}

func (h *history) request(client int, in request) {
	op := porcupine.Operation{ClientId: client, Input: in, Call: h.clock.Add(1)}
	was, kept := 0, false
	err := h.lockers[client%len(h.lockers)].Do(h.Context(), h.name, func(ctx context.Context, held *lock.Held) (err error) {
		if h.bare {
			was, err = h.section(ctx, h.Env.DB, in)
		} else {
			if rand.N(6) == 0 {
				h.outrun(ctx)
			}
			err = held.InTx(ctx, h.Env.DB, func(tx *sql.Tx) error { was, err = h.section(ctx, tx, in); return err })
		}
		kept = err == nil
		return err
	})
	op.Output, op.Return = was, h.clock.Add(1)
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case kept:
	case errors.Is(err, lock.ErrCommit) && in.swap:
		op.Output, op.Return = unknown, 1<<62
	case errors.Is(err, lock.ErrLost):
		h.lost++
		return
	case errors.Is(err, lock.ErrCommit): // its result is dropped
		return
	default:
		h.Errorf("request: %v", err)
	}
	h.done = append(h.done, op)
}

// lose removes the lock and wakes a waiter, and reports whether there was a holder.
func (h *history) lose(ctx context.Context) bool {
	key := "lock:{" + h.name + "}"
	had := h.redis.Del(ctx, key).Val() == 1
	h.redis.RPush(ctx, key+":wake", "1")
	return had
}

// outrun removes the lock, and waits until another client has it.
func (h *history) outrun(ctx context.Context) {
	token := func() (token []byte) {
		_ = h.Env.DB.QueryRowContext(ctx, "SELECT token FROM cache_outbox_locks WHERE name = ?", h.name).Scan(&token)
		return token
	}
	own := token()
	h.lose(ctx)
	// after the last section no other client comes
	for began := time.Now(); time.Since(began) < time.Second/5 && bytes.Equal(token(), own); {
	}
}

// A querier is a transaction or a pool.
type querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// section reads, and writes if the request does. Between them the lock may be lost, as in a
// failover of Redis. A section that is not guarded then waits until another client has written,
// like one that is frozen.
func (h *history) section(ctx context.Context, db querier, in request) (was int, err error) {
	read := func() (n int, err error) {
		err = db.QueryRowContext(ctx, "SELECT n FROM counters WHERE name = ?", h.name).Scan(&n)
		return n, err
	}
	if was, err = read(); err != nil {
		return 0, err
	}
	if rand.N(6) == 0 && h.lose(ctx) && h.bare {
		// after the last section no other client comes
		for began := time.Now(); time.Since(began) < time.Second; {
			if now, err := read(); err != nil || now != was {
				break
			}
		}
	}
	if in.swap {
		_, err = db.ExecContext(ctx, "UPDATE counters SET n = ? WHERE name = ?", in.put, h.name)
	}
	return was, err
}

// String draws the history, a line for each client, in the order of what happens.
func (h *history) String() string {
	slices.SortFunc(h.done, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
	var lines []string
	for _, op := range h.done {
		for len(lines) <= op.ClientId {
			lines = append(lines, fmt.Sprintf("client %d ", len(lines)+1))
		}
		const step = 4 // columns between two events
		text := fmt.Sprintf("read %d", op.Output)
		if in := op.Input.(request); in.swap {
			text = fmt.Sprintf("%d→%d", op.Output, in.put)
		}
		line := lines[op.ClientId]
		line += strings.Repeat(" ", max(0, 9+step*int(op.Call-1)-len([]rune(line)))) + "├" + text
		lines[op.ClientId] = line + strings.Repeat("─", max(0, 8+step*int(op.Return-1)-len([]rune(line)))) + "┤"
	}
	return strings.Join(lines, "\n")
}

// histories runs many short histories, some in parallel. It returns those that no register could
// have produced, and the number of refused requests.
func histories(t *testing.T, n int, bare bool) (wrong []*history, lost int) {
	w := withMySQL(t)
	var lockers []*lock.Locker
	for range 3 {
		lockers = append(lockers, w.Locker(lock.Config{}))
	}
	all := make([]*history, n)
	for batch := range slices.Chunk(all, 4) {
		var group sync.WaitGroup
		for i := range batch {
			h := &history{world: w, name: fmt.Sprint(n, "-", i), lockers: lockers, bare: bare}
			batch[i] = h
			w.SQL("INSERT INTO counters VALUES (?, 0) ON DUPLICATE KEY UPDATE n = 0", h.name)
			group.Go(func() { h.play(3, 4) })
		}
		group.Wait()
		for _, h := range batch {
			lost += h.lost
			if porcupine.CheckOperations(register, h.done) {
				continue
			}
			if wrong = append(wrong, h); bare {
				return wrong, lost // one is enough
			}
		}
	}
	t.Logf("%d histories, in which %d requests were refused; one of them:\n%s", n, lost, all[0])
	return wrong, lost
}

// Guarded sections behave as if they ran one after another, each between its start and its end,
// although their locks are lost.
func TestGuardedHistories(t *testing.T) {
	t.Parallel()
	wrong, lost := histories(t, *played, false)
	for _, h := range wrong {
		t.Errorf("no register does this:\n%s", h)
	}
	if lost == 0 {
		t.Error("no request was refused: no lock was lost")
	}
}

// Sections under leases alone do not, or the test above shows nothing.
func TestBareHistories(t *testing.T) {
	t.Parallel()
	wrong, _ := histories(t, 100, true)
	if len(wrong) == 0 {
		t.Fatal("every history could be a register's")
	}
	t.Logf("no register does this:\n%s", wrong[0])
}
