package lock

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// A Locker acquires locks, for one process and one backend. Safe for concurrent use. Close it.
type Locker struct {
	config  Config
	service service
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

// New makes a Locker of config, to which defaults are applied. It sends nothing: a server that is away shows at the first
// acquisition. The error names every field at fault.
func New(config Config) (*Locker, error) {
	config = config.WithDefaults()
	if err := config.Validate(); err != nil {
		return nil, fmt.Errorf("make locker: %w", err)
	}
	l := &Locker{config: config, pause: firstPause, held: map[*Held]bool{}}
	l.life, l.end = context.WithCancel(context.Background())
	service, err := config.Backend.open(config, l.launch)
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

// add notes a lock, whose context Close ends, and which is kept soon: many are released before they need that, and then cost
// neither a goroutine nor a timer of their own. It reports false after Close.
func (l *Locker) add(h *Held) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.held[h] = false
	if !l.swept {
		l.swept = true
		time.AfterFunc(min(glance, l.config.TTL/6), l.keepAll) // the deadline is as far away at least: Timeout and Margin leave that much
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

// remove forgets a lock that has ended, and reports whether it was kept.
func (l *Locker) remove(h *Held) (kept bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	kept = l.held[h]
	delete(l.held, h)
	return kept
}

// Close ends the contexts of locks that are held, and waits for what is under way: for MintWait and a few seconds at most.
// It releases nothing in Redis, so release first: other processes wait for the end of a lease. A session with ZooKeeper ends, and
// with it all locks. Calls that come after it return ErrClosed. A client of Redis stays open.
func (l *Locker) Close() error {
	l.mu.Lock()
	l.closed = true
	held := slices.Collect(maps.Keys(l.held))
	l.mu.Unlock()
	l.end()
	for _, h := range held {
		h.end(fmt.Errorf("lock %q: %w", h.claim.name, ErrClosed))
	}
	l.work.Wait()
	l.service.close()
	if l.mint != nil {
		return l.mint.close()
	}
	return nil
}
