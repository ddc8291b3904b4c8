package cache

import (
	"maps"
	"slices"

	"github.com/unstale/unstale/protocol"
)

const (
	// mostMatches is how many pairs of a value and a pattern may wait to be matched. Beyond that
	// the memory begins a new generation, which empties it.
	mostMatches = 1_000_000
	// sweepChunk is how many tags a sweep matches before it takes the mutex to drop some of them.
	sweepChunk = 64
)

// note evicts keys, and logs keys and patterns: put refuses values that were requested before. It
// returns the generation whose values a sweep must check against the patterns.
func (m *memory) note(keys []string, globs []protocol.Glob) (generation uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.values.evict(keys)
	generation = m.gate.current.Load()
	for _, glob := range globs {
		if m.values.reaches(glob) {
			m.values.log.addGlob(glob)
			m.waiting++
		}
	}
	if len(globs) > 0 && m.waiting*(m.values.store.EstimatedSize()+len(m.values.tags.cells)) > mostMatches {
		m.renew(m.gate.opened)
	}
	return generation
}

// evictOwn evicts keys that this process itself has unlinked.
func (m *memory) evictOwn(keys []string) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.values.evict(keys)
}

// sweep evicts the values that patterns match. It takes one pass, and matches without the mutex,
// because values that are put meanwhile were asked for after note. A new generation ends it.
func (m *memory) sweep(globs []protocol.Glob, generation uint64) {
	globs = slices.DeleteFunc(slices.Clone(globs), func(glob protocol.Glob) bool { return !m.values.reaches(glob) })
	if len(globs) == 0 {
		return
	}
	matched := func(name string) bool {
		return slices.ContainsFunc(globs, func(glob protocol.Glob) bool { return glob.Match(name) })
	}
	if m.sweepKeys(matched, generation) && m.sweepTags(matched, generation) {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.gate.current.Load() == generation {
			m.waiting -= len(globs)
		}
	}
}

// sweepKeys evicts the values of matched keys. It reports false if there is a new generation.
func (m *memory) sweepKeys(matched func(string) bool, generation uint64) bool {
	for key := range m.values.store.Keys() {
		if m.gate.current.Load() != generation {
			return false
		}
		if matched(m.values.prefix + key) {
			m.values.store.Invalidate(key)
		}
	}
	return true
}

// sweepTags evicts the values of matched tags. It reports false if there is a new generation.
func (m *memory) sweepTags(matched func(string) bool, generation uint64) bool {
	m.mu.Lock()
	tags := slices.Collect(maps.Keys(m.values.tags.cells))
	m.mu.Unlock()
	for chunk := range slices.Chunk(tags, sweepChunk) {
		chunk = slices.DeleteFunc(chunk, func(tag string) bool { return !matched(protocol.StampKey(tag)) })
		if !m.dropTags(chunk, generation) {
			return false
		}
	}
	return true
}

// dropTags evicts the values of tags. It reports false if there is a new generation.
func (m *memory) dropTags(tags []string, generation uint64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.gate.current.Load() != generation {
		return false
	}
	for _, tag := range tags {
		m.values.tags.drop(tag)
	}
	return true
}
