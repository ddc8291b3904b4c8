package lock

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/unstale/unstale/lock/internal/locking"
)

// A Locker acquires locks, for one process and one backend. Safe for concurrent use. Close it.
type Locker struct {
	config  Config
	service locking.Service
	mint    *mint // nil without MySQL
	queues  queues
	counts  counts
	pause   time.Duration // firstPause, but in tests

	life   context.Context // ends with Close
	end    context.CancelFunc
	mu     sync.Mutex // guards closed against work
	closed bool
	held   map[*Held]bool // not ended yet; true: it is kept
	swept  bool           // the others will be kept soon
	work   sync.WaitGroup // goroutines that extend, mint, wait or release
}

// New returns a Locker with defaults applied to config. It sends nothing: an unavailable server
// shows at the first acquisition. The error names every invalid field.
func New(config Config) (*Locker, error) {
	config = config.WithDefaults()
	if err := config.Validate(); err != nil {
		return nil, fmt.Errorf("make locker: %w", err)
	}
	l := &Locker{config: config, pause: firstPause, held: map[*Held]bool{}}
	l.life, l.end = context.WithCancel(context.Background())
	service, err := locking.Open(config.Backend.Opener(), locking.Opening{Config: locking.Config{
		TTL: config.TTL, Margin: config.Margin, Timeout: config.Timeout, Holder: config.Holder, Logger: config.Logger,
	}, Life: l.life, Launch: l.launch})
	if err != nil {
		return nil, fmt.Errorf("make locker: %w", err)
	}
	l.service = service
	if config.MySQL != nil {
		if l.mint, err = newMint(config, &l.counts.mint); err != nil {
			return nil, fmt.Errorf("make locker: %w", err)
		}
	}
	return l, nil
}

// launch runs f in a goroutine that Close waits for. It reports false after Close.
func (l *Locker) launch(f func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.work.Go(f)
	return true
}

// add registers a lock for Close, which ends its context. The lock is extended only later: many
// locks are released before, and then cost neither a goroutine nor a timer. It returns false after
// Close.
func (l *Locker) add(h *Held) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.held[h] = false
	if !l.swept {
		l.swept = true
		// the deadline is as far away at least: Timeout and Margin leave that much
		time.AfterFunc(min(glance, l.config.TTL/6), l.keepAll)
	}
	return true
}

// keepAll begins to keep the locks that are held.
func (l *Locker) keepAll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.swept = false
	for h, kept := range l.held {
		if !kept && !l.closed {
			l.held[h] = true
			l.work.Go(h.keep)
		}
	}
}

// remove unregisters a lock that has ended, and reports whether it was being extended.
func (l *Locker) remove(h *Held) (kept bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	kept = l.held[h]
	delete(l.held, h)
	return kept
}

// Close ends the contexts of held locks, and waits for running requests: at most MintWait plus a
// few seconds. It releases nothing in Redis, so release first: other processes wait for the end of
// a lease. A ZooKeeper session ends, and with it all locks. Later calls return ErrClosed. A Redis
// client stays open.
func (l *Locker) Close() error {
	l.mu.Lock()
	l.closed = true
	held := slices.Collect(maps.Keys(l.held))
	l.mu.Unlock()
	l.end()
	for _, h := range held {
		h.end(fmt.Errorf("lock %q: %w", h.claim.Name, ErrClosed))
	}
	l.work.Wait()
	l.service.Close()
	if l.mint != nil {
		return l.mint.close()
	}
	return nil
}
