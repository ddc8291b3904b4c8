package cache

import (
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/protocol"
)

const (
	// longestBacklog is how many messages, keys and patterns wait to be applied at most.
	longestBacklog = logLength
	// longestWait is how long one may wait before the memory is shut, and watchStep how often that
	// is looked at.
	longestWait = time.Second
	watchStep   = 100 * time.Millisecond
)

// An arrival holds one result of a subscription: a redis.Message, a redis.Pong, a
// redis.Subscription, or the error that ended it.
type arrival struct {
	at  time.Time
	got any

	// Of a message:
	message    protocol.Message
	globs      []protocol.Glob
	generation uint64 // a sweep looks through its values
	fault      error  // why it cannot be read, or was dropped
	rejected   error  // why only its keys and patterns count
}

// read decodes the text of a message. One that cannot be read has no keys and no globs.
func (a *arrival) read(text string) {
	if a.message, a.fault = protocol.DecodeMessage([]byte(text)); a.fault != nil {
		return
	}
	globs := make([]protocol.Glob, len(a.message.Patterns))
	for i, pattern := range a.message.Patterns {
		var err error
		if globs[i], err = protocol.CompileGlob(pattern); err != nil {
			a.fault = fmt.Errorf("%w: %q: %w", ErrInvalidationPattern, pattern, err)
			return
		}
	}
	a.globs = globs
}

// size returns the room that an arrival takes in a backlog. Arrivals other than messages are few.
func (a *arrival) size() int {
	if _, ok := a.got.(*redis.Message); !ok || a.fault == errBacklog {
		return 0
	}
	return 1 + len(a.message.Keys) + len(a.message.Patterns)
}

// A backlog holds arrivals in their order until they are applied. Adding one does not block. Safe
// for concurrent use by one goroutine that adds and one that applies.
type backlog struct {
	ready chan struct{} // has an element if something waits

	mu      sync.Mutex
	waiting []*arrival
	size    int
	begun   time.Time // when what is yet to be added arrived, or zero
	closed  chan struct{}
}

func newBacklog() *backlog {
	return &backlog{ready: make(chan struct{}, 1), closed: make(chan struct{})}
}

// begin records the time of an arrival that add will append.
func (b *backlog) begin(at time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.begun = at
}

// add appends an arrival. Without room it drops messages and appends one arrival with errBacklog
// for all of them in a row. It reports false after close.
func (b *backlog) add(a *arrival) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.begun = time.Time{}
	select {
	case <-b.closed:
		return false
	default:
	}
	size := a.size()
	if size > 0 && b.size+size > longestBacklog {
		if n := len(b.waiting); n > 0 && b.waiting[n-1].fault == errBacklog {
			return true
		}
		*a, size = arrival{at: a.at, got: a.got, fault: errBacklog}, 0
	}
	b.waiting, b.size = append(b.waiting, a), b.size+size
	b.signal()
	return true
}

var (
	errBacklog = fmt.Errorf("more than %d keys and patterns wait to be applied", longestBacklog)
	errLate    = fmt.Errorf("an invalidation has waited for more than %v to be applied", longestWait)
	errShut    = fmt.Errorf("nothing is given out from memory: %w", errLate)
)

func (b *backlog) signal() {
	select {
	case b.ready <- struct{}{}:
	default:
	}
}

// oldest returns the first arrival, after ready. It waits until done.
func (b *backlog) oldest() *arrival {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.waiting[0]
}

// done removes the oldest arrival.
func (b *backlog) done() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.size -= b.waiting[0].size()
	b.waiting[0] = nil
	if b.waiting = b.waiting[1:]; len(b.waiting) > 0 {
		b.signal()
	}
}

func (b *backlog) empty() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.waiting) == 0 && b.begun.IsZero()
}

// late reports whether something has waited for longer than longestWait.
func (b *backlog) late(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	since := b.begun
	if len(b.waiting) > 0 {
		since = b.waiting[0].at
	}
	return !since.IsZero() && now.Sub(since) > longestWait
}

func (b *backlog) close() { close(b.closed) }
