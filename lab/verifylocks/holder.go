package verifylocks

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/clock"
	"github.com/unstale/unstale/lab/rig"
	"github.com/unstale/unstale/lock"
)

const (
	told      = 100 * time.Millisecond // between two lines of a holder
	afterFail = 20 * time.Millisecond  // until the next section, if a server is unavailable
)

// A spec is the configuration of a holder, sent at its start.
type spec struct {
	Turn, Process int
	Seed          uint64
	Backends      []string // that run
	MySQL         string   // a DSN
	Redis         string   // an address
	Redlock       []string // addresses
	ZooKeeper     []string // likewise
	TTL           time.Duration
	Plant         string
}

// lanes returns the numbers of those that run.
func (s *spec) lanes() (list []int) {
	for i, l := range lanes {
		if slices.Contains(s.Backends, l.backend) {
			list = append(list, i)
		}
	}
	return list
}

// A tally is the counts of a holder in a lane since its last line.
type tally struct {
	Done    int    `json:"done"`    // it was told to be committed
	Refused int    `json:"refused"` // the lock was lost before
	Unknown int    `json:"unknown"` // COMMIT got no answer, or UPDATE of a bare section
	Failed  int    `json:"failed"`  // anything else: a server was unavailable
	Error   string `json:"error"`   // one of these
}

func (t *tally) add(u tally) {
	t.Done += u.Done
	t.Refused += u.Refused
	t.Unknown += u.Unknown
	t.Failed += u.Failed
	if u.Error != "" {
		t.Error = u.Error
	}
}

// A holder is one process that acquires locks.
type holder struct {
	spec
	db     *sql.DB
	locks  map[int]*lock.Locker // of each lane that runs
	closes []func() error       // first in, last out

	mu      sync.Mutex
	tallies []tally // of each lane
}

// Hold runs a holder process. It takes its orders from in, a line of JSON, and writes its counts to
// out, a line of JSON at a time, until in ends.
func Hold(ctx context.Context, in io.Reader, out io.Writer) error {
	if err := clock.Follow(); err != nil {
		return err
	}
	orders := bufio.NewReader(in)
	line, err := orders.ReadBytes('\n')
	if err != nil {
		return errors.New("a holder is started by verify-locks, which tells it what to do")
	}
	h := &holder{locks: map[int]*lock.Locker{}, tallies: make([]tally, len(lanes))}
	if err := json.Unmarshal(line, &h.spec); err != nil {
		return fmt.Errorf("read the orders: %w", err)
	}
	redis.SetLogger(rig.Silence{})          // errors are expected
	_ = mysql.SetLogger(&mysql.NopLogger{}) // it refuses none but nil
	if err := h.open(); err != nil {
		h.close()
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, orders) // its end is the order to stop
		cancel()
	}()
	var group sync.WaitGroup
	for _, i := range h.lanes() {
		l := lanes[i]
		for n := range l.workers/len(h.Backends) + l.hot {
			w := &worker{holder: h, lane: i, hot: n < l.hot, dice: rand.New(rand.NewPCG(h.Seed, uint64(h.Process<<16|i<<8|n)))}
			group.Go(func() { w.work(ctx) })
		}
	}
	encoder := json.NewEncoder(out)
	for err == nil && ctx.Err() == nil {
		sleep(ctx, told)
		err = encoder.Encode(h.take())
	}
	cancel()
	group.Wait()
	h.close()
	return errors.Join(err, encoder.Encode(h.take()))
}

// open makes a Locker for each lane: only those of guarded lanes mint.
func (h *holder) open() error {
	config, err := mysql.ParseDSN(h.MySQL)
	if err != nil {
		return err
	}
	if h.db, err = sql.Open("mysql", h.MySQL); err != nil {
		return err
	}
	h.db.SetMaxIdleConns(32)
	h.closes = append(h.closes, h.db.Close)
	for _, i := range h.lanes() {
		backend, closes := backends[lanes[i].backend](&h.spec)
		c := lock.Config{Backend: backend, TTL: h.TTL, Timeout: h.TTL / 3, MintWait: 5 * time.Second, Logger: slog.New(slog.DiscardHandler)}
		if lanes[i].backend == zookeeper {
			c.Timeout = 0 // the default leaves time for another server
		}
		if lanes[i].guarded {
			c.MySQL = config
		}
		locker, err := lock.New(c)
		if err != nil {
			return errors.Join(err, closes())
		}
		h.locks[i] = locker
		h.closes = append(h.closes, closes, locker.Close)
	}
	return nil
}

// close waits for running sections. Errors are of connections that the servers have ended.
func (h *holder) close() {
	for i := range h.closes {
		_ = h.closes[len(h.closes)-1-i]()
	}
}

// count adds to the tally of a lane.
func (h *holder) count(lane int, t tally) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tallies[lane].add(t)
}

// take returns what was counted since the last call.
func (h *holder) take() []tally {
	h.mu.Lock()
	defer h.mu.Unlock()
	taken := h.tallies
	h.tallies = make([]tally, len(lanes))
	return taken
}

// sleep waits, or returns early when ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
