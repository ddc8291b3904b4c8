package cache

import (
	"slices"
	"strings"

	"github.com/unstale/unstale/protocol"
)

const (
	// mostMatches is how many pairs of a value and a pattern may wait to be matched. Beyond that the
	// memory begins a new generation, which empties it.
	mostMatches = 1_000_000
	// sweepChunk is how many tags a sweep looks at before it lets others have the mutex.
	sweepChunk = 64
)

// note evicts keys, and logs keys and patterns, so that put refuses what was asked for before. It
// returns the generation whose values a sweep must look through for the patterns.
func (m *memory) note(keys []string, globs []protocol.Glob) (generation uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.evictKeys(keys)
	generation = m.current.Load()
	for _, glob := range globs {
		m.log.addGlob(glob)
		if m.reaches(glob) {
			m.waiting++
		}
	}
	if len(globs) > 0 && m.waiting*(m.store.EstimatedSize()+len(m.tags.cells)) > mostMatches {
		m.renew(m.opened)
	}
	return generation
}

// reaches reports whether a pattern may match a value's key or stamp.
func (m *memory) reaches(glob protocol.Glob) bool {
	literal := glob.Prefix()
	return slices.ContainsFunc([]string{m.prefix, protocol.StampPrefix}, func(prefix string) bool {
		return strings.HasPrefix(prefix, literal) || strings.HasPrefix(literal, prefix)
	})
}

// evictOwn evicts keys that this process itself has unlinked.
func (m *memory) evictOwn(keys []string) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.evictKeys(keys)
}

// evictKeys evicts exact keys. The caller holds mu.
func (m *memory) evictKeys(keys []string) {
	for _, name := range keys {
		m.log.addKey(name)
		if key, ok := strings.CutPrefix(name, m.prefix); ok {
			m.store.Invalidate(key)
		}
		if tag, ok := strings.CutPrefix(name, protocol.StampPrefix); ok {
			m.tags.drop(tag)
		}
	}
}

// sweep evicts the values that patterns match. It takes one pass, without the mutex for keys, because
// values that are put meanwhile were asked for after note. A new generation ends it.
func (m *memory) sweep(globs []protocol.Glob, generation uint64) {
	globs = slices.DeleteFunc(slices.Clone(globs), func(glob protocol.Glob) bool { return !m.reaches(glob) })
	if len(globs) == 0 {
		return
	}
	matched := func(name string) bool {
		return slices.ContainsFunc(globs, func(glob protocol.Glob) bool { return glob.Match(name) })
	}
	for key := range m.store.Keys() {
		if m.current.Load() != generation {
			return
		}
		if matched(m.prefix + key) {
			m.store.Invalidate(key)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	seen := 0
	for tag := range m.tags.cells {
		if seen++; seen%sweepChunk == 0 {
			m.mu.Unlock()
			m.mu.Lock()
		}
		if m.current.Load() != generation {
			return
		}
		if matched(protocol.StampKey(tag)) {
			m.tags.drop(tag)
		}
	}
	if m.current.Load() == generation {
		m.waiting -= len(globs)
	}
}
