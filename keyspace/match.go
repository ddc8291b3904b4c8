package keyspace

import (
	"slices"

	"github.com/unstale/unstale/protocol"
)

const (
	// maxFiled is how many bytes of a literal text tell patterns apart. It
	// bounds the matcher's memory.
	maxFiled = 64
	// fewGlobs are tried one after the other rather than filed once more.
	fewGlobs = 8
)

// A matcher tells which of several patterns a name matches. Patterns are filed
// by the literal text that they begin with, and where many begin alike, also
// by the longest literal text behind that. So the cost of a name depends on its
// length and on how many patterns nearly match it, not on how many there are.
type matcher struct {
	globs    []protocol.Glob // zero where the pattern is none
	prefixes *trie
	drawers  []drawer // one for each list of prefixes
	good     int      // how many patterns are globs
}

// A drawer holds the globs that begin alike.
type drawer struct {
	few   []int // indices of globs
	texts *trie // of the others by their longest literal text behind the prefix; nil: there are none
}

// compile reads patterns. A pattern that is no glob is left out, with the
// reason in the result.
func compile(patterns []PatternResult) *matcher {
	m := &matcher{globs: make([]protocol.Glob, len(patterns)), prefixes: newTrie()}
	for i := range patterns {
		g, err := protocol.CompileGlob(patterns[i].Pattern)
		if err != nil {
			patterns[i].Err = &Refusal{Key: patterns[i].Pattern, Err: err}
			continue
		}
		m.globs[i] = g
		m.prefixes.add(filed(g.Prefix()), i)
		m.good++
	}
	m.drawers = make([]drawer, len(m.prefixes.lists))
	for i, alike := range m.prefixes.lists {
		m.drawers[i] = m.newDrawer(alike)
	}
	return m
}

func filed(text string) string { return text[:min(len(text), maxFiled)] }

func (m *matcher) newDrawer(alike []int) (d drawer) {
	if len(alike) <= fewGlobs {
		return drawer{few: alike}
	}
	for _, i := range alike {
		text := filed(m.globs[i].Infix())
		if text == "" {
			d.few = append(d.few, i)
			continue
		}
		if d.texts == nil {
			d.texts = newTrie()
		}
		d.texts.add(text, i)
	}
	if d.texts != nil {
		d.texts.link()
	}
	return d
}

// match is the index of the first pattern that name matches, or -1.
func (m *matcher) match(name string) int {
	best := -1
	m.candidates(name, func(globs []int) {
		for _, i := range globs {
			if (best < 0 || i < best) && m.globs[i].Match(name) {
				best = i
			}
		}
	})
	return best
}

// all are the indices of all patterns that name matches.
func (m *matcher) all(name string) (found []int) {
	m.candidates(name, func(globs []int) {
		for _, i := range globs {
			if !slices.Contains(found, i) && m.globs[i].Match(name) {
				found = append(found, i)
			}
		}
	})
	return found
}

// candidates calls try with the globs that name may match, some of them more
// than once.
func (m *matcher) candidates(name string, try func(globs []int)) {
	for node, at := int32(0), 0; ; at++ {
		if list := m.prefixes.nodes[node].list; list != 0 {
			d := m.drawers[list]
			try(d.few)
			if d.texts != nil {
				d.texts.contained(name[at:], try)
			}
		}
		if at == len(name) {
			return
		}
		if node = m.prefixes.step(node, name[at]); node == 0 {
			return
		}
	}
}

// unit is what is to be unlinked for a name that a scan found: the key with
// its lease where the key matches, also where it is only the lease that exists.
func (m *matcher) unit(name string) (unit, bool) {
	if index := m.match(name); index >= 0 {
		return newUnit(index, name), true
	}
	if inner, isLease := protocol.InnerKey(name); isLease {
		if index := m.match(inner); index >= 0 {
			return unit{index: index, key: inner, lease: name}, true
		}
	}
	return unit{}, false
}
