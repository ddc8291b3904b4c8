package cache

import (
	"hash/maphash"
	"sync/atomic"

	"github.com/unstale/unstale/protocol"
)

// mostGlobs is how many patterns may arrive during a read whose value is kept. put matches each
// with the key and with each of its tags, while messages wait for the mutex: 65,000 patterns take
// 0.8 ms or more.
const mostGlobs = 4 * protocol.MaxEntries

// logLength is how many evictions are kept. A value that was requested more than that many
// evictions ago is not stored in L1. A worker with a backlog publishes 100,000 keys per second, so
// these are two thirds of a second, in 1 MiB.
const logLength = 65_536

// An evictionLog remembers the latest evictions. next and globs may be read at any time, the rest
// is the caller's to guard.
type evictionLog struct {
	next  atomic.Uint64 // the number of the next eviction
	globs atomic.Uint64 // how many of all were patterns
	seed  maphash.Seed
	ring  []eviction
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

func (l *evictionLog) addGlob(glob protocol.Glob) {
	l.globs.Add(1)
	l.add(eviction{glob: &glob})
}

func (l *evictionLog) add(e eviction) {
	l.ring[l.next.Load()%logLength] = e
	l.next.Add(1)
}

// overrun reports whether the log no longer reaches back to a mark, or has more than mostGlobs
// since.
func (l *evictionLog) overrun(since mark) bool {
	return l.next.Load()-since.at > logLength || l.globs.Load()-since.globs > mostGlobs
}

// hit reports whether an eviction since number at meant name (or, with probability 2^-64, another
// key). The log must reach back to at.
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
