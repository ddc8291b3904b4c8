package lock

import (
	"context"
	"fmt"
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
	work   sync.WaitGroup // goroutines that extend, mint, wait or release
}

// New makes a Locker of config, to which defaults are applied. It sends nothing: a server that is away shows at the first
// acquisition. The error names every field at fault.
func New(config Config) (*Locker, error) {
	config = config.WithDefaults()
	if err := config.Validate(); err != nil {
		return nil, fmt.Errorf("make locker: %w", err)
	}
	l := &Locker{config: config, pause: firstPause}
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

// Close ends the contexts of locks that are held, and waits for what is under way: for MintWait and a few seconds at most.
// It releases nothing in Redis, so release first: other processes wait for the end of a lease. A session with ZooKeeper ends, and
// with it all locks. Calls that come after it return ErrClosed. A client of Redis stays open.
func (l *Locker) Close() error {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.end()
	l.work.Wait()
	l.service.close()
	if l.mint != nil {
		return l.mint.close()
	}
	return nil
}
