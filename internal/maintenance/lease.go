package maintenance

import (
	"math"
	"sync"
	"time"
)

// A SettleLease is the longest lease that a reader may hold, according to this process. Readers
// take leases as long as the latest announcement allows. So a longer lease counts until a shorter
// one is announced, and then until it has ended. Safe for concurrent use.
type SettleLease struct {
	mu      sync.Mutex
	lease   time.Duration // of the current map
	hash    time.Duration // that readers find in protocol.AliveKey; zero: none
	beats   time.Duration // and in heartbeats
	since   time.Time     // when both first had a lease of this worker; zero: not yet
	earlier []earlierLease
}

// Unannounced is a medium's lease before the first announcement.
const Unannounced time.Duration = math.MaxInt64

// An earlierLease is longer than the lease of the current map.
type earlierLease struct {
	lease time.Duration
	until time.Time // zero: no shorter one is announced yet
}

// Set records the lease of a newly loaded map.
func (l *SettleLease) Set(lease time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lease == 0 {
		l.hash, l.beats = Unannounced, Unannounced
	}
	if l.lease > lease {
		l.earlier = append(l.earlier, earlierLease{lease: l.lease})
	}
	l.lease = lease
}

// AnnouncedInBeats records which lease heartbeats have; zero: none are sent.
func (l *SettleLease) AnnouncedInBeats(lease time.Duration) { l.announced(&l.beats, lease, 0) }

// AnnouncedInHash records which lease protocol.AliveKey has, zero for none, and had before.
func (l *SettleLease) AnnouncedInHash(has, had time.Duration) { l.announced(&l.hash, has, had) }

func (l *SettleLease) announced(medium *time.Duration, lease, before time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if before > l.lease { // of another worker, which announced it in both
		l.earlier, l.hash, l.beats = append(l.earlier, earlierLease{lease: before}), before, before
	}
	*medium = lease
	now, longest := time.Now(), max(l.hash, l.beats)
	if l.since.IsZero() && longest < Unannounced {
		l.since = now
	}
	for i := range l.earlier {
		if e := &l.earlier[i]; e.until.IsZero() && longest < e.lease {
			e.until = now.Add(e.lease)
		}
	}
}

// ForHeartbeats returns the lease that heartbeats announce: the lease of the map, or a shorter one
// of another worker, as in the hash. Workers of an earlier release do not wait for a longer one.
func (l *SettleLease) ForHeartbeats() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.hash > 0 {
		return min(l.lease, l.hash)
	}
	return l.lease
}

// Now returns the longest lease that a reader may hold, and for how long the worker has announced a
// lease; zero: not yet.
func (l *SettleLease) Now() (longest, announced time.Duration) {
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
