package keyspace

import (
	"slices"

	"github.com/unstale/unstale/protocol"
)

const (
	// maxFiled is how many bytes of a literal text tell patterns apart. It bounds the matcher's
	// memory.
	maxFiled = 64
	// fewGlobs are tried one after the other rather than filed once more.
	fewGlobs = 8
)

// A Matcher tells which of several patterns a name matches. Patterns are filed by the literal text
// that they begin with, and where many begin alike, also by the longest literal text behind that.
// So the cost of a name depends on its length and on how many patterns nearly match it, not on how
// many there are. Safe for concurrent use.
type Matcher struct {
	globs    []protocol.Glob // zero where the pattern is not a glob
	prefixes *trie
	buckets  []bucket // one for each list of prefixes
}

// A bucket holds the globs that begin alike.
type bucket struct {
	few []int // indices of globs
	// of the others by their longest literal text behind the prefix; nil: there are none
	texts *trie
}

// NewMatcher reads patterns. One that is not a glob matches nothing; refused is called with its index
// and
// the reason.
func NewMatcher(patterns []string, refused func(index int, err error)) *Matcher {
	m := &Matcher{globs: make([]protocol.Glob, len(patterns)), prefixes: newTrie()}
	for i, pattern := range patterns {
		g, err := protocol.CompileGlob(pattern)
		if err != nil {
			refused(i, err)
			continue
		}
		m.globs[i] = g
		m.prefixes.add(filed(g.Prefix()), i)
	}
	m.buckets = make([]bucket, len(m.prefixes.lists))
	for i, alike := range m.prefixes.lists {
		m.buckets[i] = m.newBucket(alike)
	}
	return m
}

func filed(text string) string { return text[:min(len(text), maxFiled)] }

func (m *Matcher) newBucket(alike []int) (b bucket) {
	if len(alike) <= fewGlobs {
		return bucket{few: alike}
	}
	for _, i := range alike {
		text := filed(m.globs[i].Infix())
		if text == "" {
			b.few = append(b.few, i)
			continue
		}
		if b.texts == nil {
			b.texts = newTrie()
		}
		b.texts.add(text, i)
	}
	if b.texts != nil {
		b.texts.link()
	}
	return b
}

// First returns the index of the first pattern that name matches, or -1.
func (m *Matcher) First(name string) int {
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

// All returns the indices of all patterns that name matches.
func (m *Matcher) All(name string) (found []int) {
	m.candidates(name, func(globs []int) {
		for _, i := range globs {
			if !slices.Contains(found, i) && m.globs[i].Match(name) {
				found = append(found, i)
			}
		}
	})
	return found
}

// candidates calls try with the globs that name may match, some of them more than once.
func (m *Matcher) candidates(name string, try func(globs []int)) {
	for node, at := int32(0), 0; ; at++ {
		if list := m.prefixes.nodes[node].list; list != 0 {
			b := m.buckets[list]
			try(b.few)
			if b.texts != nil {
				b.texts.contained(name[at:], try)
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
