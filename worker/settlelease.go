package worker

import (
	"sync"
	"time"
)

// A settleLease is the longest lease that a reader may hold, over reloads of the map. If a reload
// shortens the lease of the map, readers may still hold a longer one: second sweeps wait for that
// until it has ended. Safe for concurrent use.
type settleLease struct {
	mu      sync.Mutex
	lease   time.Duration // of the current map
	earlier []earlierLease
}

// An earlierLease is longer than the map's lease, and counts until a time.
type earlierLease struct {
	lease time.Duration
	until time.Time
}

// set records the lease of a newly loaded map.
func (l *settleLease) set(lease time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lease > lease {
		l.earlier = append(l.earlier, earlierLease{l.lease, time.Now().Add(l.lease)})
	}
	l.lease = lease
}

// longest returns the longest lease that a reader may hold now.
func (l *settleLease) longest() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	now, longest, kept := time.Now(), l.lease, l.earlier[:0]
	for _, e := range l.earlier {
		if now.Before(e.until) {
			longest, kept = max(longest, e.lease), append(kept, e)
		}
	}
	l.earlier = kept
	return longest
}
