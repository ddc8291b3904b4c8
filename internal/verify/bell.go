package verify

import "sync"

// A bell tells whoever waits that something has happened. The zero value is ready. Safe for concurrent use.
type bell struct {
	mu      sync.Mutex
	waiting chan struct{} // nil: nobody waits
}

// next returns a channel that is closed when the bell is rung next.
func (b *bell) next() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.waiting == nil {
		b.waiting = make(chan struct{})
	}
	return b.waiting
}

// ring wakes those who wait.
func (b *bell) ring() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.waiting != nil {
		close(b.waiting)
		b.waiting = nil
	}
}
