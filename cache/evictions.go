package cache

import (
	"hash/maphash"
	"sync/atomic"

	"github.com/unstale/unstale/protocol"
)

// logLength is how many evictions are remembered: a value that was asked for more than that many evictions ago is not kept.
// A worker that works off a backlog publishes 100,000 keys a second, so these are two thirds of a second, in 1 MiB.
const logLength = 65_536

// An evictionLog remembers the latest evictions. next may be read at any time, the rest is the caller's to guard.
type evictionLog struct {
	next atomic.Uint64 // the number of the next eviction
	seed maphash.Seed
	ring []eviction
}

// An eviction is a key's hash, or a pattern.
type eviction struct {
	hash uint64
	glob *protocol.Glob
}

func newEvictionLog() evictionLog {
	return evictionLog{seed: maphash.MakeSeed(), ring: make([]eviction, logLength)}
}

func (l *evictionLog) addKey(name string) { l.add(eviction{hash: maphash.String(l.seed, name)}) }

func (l *evictionLog) addGlob(glob protocol.Glob) { l.add(eviction{glob: &glob}) }

func (l *evictionLog) add(e eviction) {
	l.ring[l.next.Load()%logLength] = e
	l.next.Add(1)
}

// overrun reports whether the log does not reach back to number at any more.
func (l *evictionLog) overrun(at uint64) bool { return l.next.Load()-at > logLength }

// hit reports whether an eviction since number at, to which the log must reach back, meant name or, one time in 2^64,
// another key.
func (l *evictionLog) hit(at uint64, name string) bool {
	next := l.next.Load()
	if next == at {
		return false
	}
	hash := maphash.String(l.seed, name)
	for ; at < next; at++ {
		e := l.ring[at%logLength]
		if e.glob != nil && e.glob.Match(name) || e.glob == nil && e.hash == hash {
			return true
		}
	}
	return false
}
