package worker

import (
	"math"
	"sync"
	"time"
)

// A settleLease is the longest lease that a reader may hold, according to this process. Readers
// take leases as long as the latest announcement allows. So a longer lease counts until a shorter
// one is announced, and then until it has ended. Safe for concurrent use.
type settleLease struct {
	mu      sync.Mutex
	lease   time.Duration // of the current map
	hash    time.Duration // that readers find in protocol.AliveKey; zero: none
	beats   time.Duration // and in heartbeats
	since   time.Time     // when both first had a lease of this worker; zero: not yet
	earlier []earlierLease
}

// unannounced is a medium's lease before the first announcement.
const unannounced time.Duration = math.MaxInt64

// An earlierLease is longer than the lease of the current map.
type earlierLease struct {
	lease time.Duration
	until time.Time // zero: no shorter one is announced yet
}

// set records the lease of a newly loaded map.
func (l *settleLease) set(lease time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lease == 0 {
		l.hash, l.beats = unannounced, unannounced
	}
	if l.lease > lease {
		l.earlier = append(l.earlier, earlierLease{lease: l.lease})
	}
	l.lease = lease
}

// announced records which lease a medium, hash or beats, has, and which one it had before.
func (l *settleLease) announced(medium *time.Duration, lease, before time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if before > l.lease { // of another worker, which announced it in both
		l.earlier, l.hash, l.beats = append(l.earlier, earlierLease{lease: before}), before, before
	}
	*medium = lease
	now, longest := time.Now(), max(l.hash, l.beats)
	if l.since.IsZero() && longest < unannounced {
		l.since = now
	}
	for i := range l.earlier {
		if e := &l.earlier[i]; e.until.IsZero() && longest < e.lease {
			e.until = now.Add(e.lease)
		}
	}
}

// forHeartbeats returns the lease that heartbeats announce: the lease of the map, or a shorter one
// of another worker, as in the hash. Workers of an earlier release do not wait for a longer one.
func (l *settleLease) forHeartbeats() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.hash > 0 {
		return min(l.lease, l.hash)
	}
	return l.lease
}

// now returns the longest lease that a reader may hold, and for how long the worker has announced a
// lease; zero: not yet.
func (l *settleLease) now() (longest, announced time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now, longest, kept := time.Now(), l.lease, l.earlier[:0]
	for _, e := range l.earlier {
		if e.until.IsZero() || now.Before(e.until) {
			longest, kept = max(longest, e.lease), append(kept, e)
		}
	}
	l.earlier = kept
	if !l.since.IsZero() {
		announced = now.Sub(l.since)
	}
	return longest, announced
}
