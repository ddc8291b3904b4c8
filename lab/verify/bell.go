package verify

import "sync"

// A bell notifies all waiting goroutines of an event. The zero value is ready for use. Safe for
// concurrent use.
type bell struct {
	mu      sync.Mutex
	waiting chan struct{} // nil: no goroutine waits
}

// next returns a channel that the next call of ring closes.
func (b *bell) next() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.waiting == nil {
		b.waiting = make(chan struct{})
	}
	return b.waiting
}

// ring wakes all waiting goroutines.
func (b *bell) ring() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.waiting != nil {
		close(b.waiting)
		b.waiting = nil
	}
}
