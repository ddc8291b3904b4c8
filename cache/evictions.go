package cache

import (
	"hash/maphash"
	"sync/atomic"

	"github.com/unstale/unstale/protocol"
)

// logLength is how many evictions are remembered. A worker's largest messages name 1,000 entries; a value that was asked
// for more than that many evictions ago is not kept.
const logLength = 8192

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

// hit reports whether an eviction since number at may have meant name: also where the log reaches back less far, and, one
// time in 2^64, where it meant another key.
func (l *evictionLog) hit(at uint64, name string) bool {
	next := l.next.Load()
	if next-at > logLength {
		return true
	}
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
