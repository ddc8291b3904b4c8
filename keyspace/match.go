package keyspace

import "github.com/unstale/unstale/invalidation"

// A matcher tells which of several patterns a name matches. It tries one after
// the other: the cost of a pass grows with the number of patterns.
type matcher struct {
	globs   []invalidation.Glob
	indices []int // of the pattern that each glob was compiled from
}

// compile reads patterns. A pattern that is no glob is left out, with the
// reason in the result.
func compile(patterns []PatternResult) matcher {
	var m matcher
	for i := range patterns {
		g, err := invalidation.CompileGlob(patterns[i].Pattern)
		if err != nil {
			patterns[i].Err = &Refusal{Key: patterns[i].Pattern, Err: err}
			continue
		}
		m.globs = append(m.globs, g)
		m.indices = append(m.indices, i)
	}
	return m
}

// match is the index of the first pattern that name matches.
func (m matcher) match(name string) (index int, ok bool) {
	for i, g := range m.globs {
		if g.Match(name) {
			return m.indices[i], true
		}
	}
	return 0, false
}

// unit is what is to be unlinked for a name that a scan found: the key with
// its lease where the key matches, also where it is only the lease that exists.
func (m matcher) unit(name string) (unit, bool) {
	if index, ok := m.match(name); ok {
		return newUnit(index, name), true
	}
	if inner, isLease := invalidation.InnerKey(name); isLease {
		if index, ok := m.match(inner); ok {
			return unit{index: index, key: inner, lease: name}, true
		}
	}
	return unit{}, false
}
