package keyspace

import (
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
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
		m.prefixes.insert(filed(g.Prefix()), i)
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
		b.texts.insert(text, i)
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

// A trie files values under texts and finds those whose text a name begins with. Linked, it finds
// those whose text a name contains anywhere, which makes it the automaton of Aho and Corasick
// (Efficient String Matching, 1975). A walk takes a step for each byte, however many texts there
// are.
//
// It takes 24 bytes of memory for each byte of text that no other text shares.
type trie struct {
	nodes []trieNode
	roots [256]int32 // children of the root, which have most siblings
	lists [][]int
}

// A trieNode's numbers are indices in nodes; 0 is the root, or none.
type trieNode struct {
	child, sibling int32
	// where to go on when no child fits: the longest proper suffix that is a node
	fail  int32
	found int32 // the nearest node on the way of fails that has a list
	list  int32 // index in lists; 0: none
	b     byte
}

func newTrie() *trie { return &trie{nodes: make([]trieNode, 1), lists: make([][]int, 1)} }

// step returns the child of node for b, or 0.
func (t *trie) step(node int32, b byte) int32 {
	if node == 0 {
		return t.roots[b]
	}
	for n := t.nodes[node].child; n != 0; n = t.nodes[n].sibling {
		if t.nodes[n].b == b {
			return n
		}
	}
	return 0
}

// insert files value under text.
func (t *trie) insert(text string, value int) {
	node := int32(0)
	for i := range len(text) {
		next := t.step(node, text[i])
		if next == 0 {
			next = int32(len(t.nodes))
			t.nodes = append(t.nodes, trieNode{b: text[i], sibling: t.nodes[node].child})
			t.nodes[node].child = next
			if node == 0 {
				t.roots[text[i]] = next
			}
		}
		node = next
	}
	n := &t.nodes[node]
	if n.list == 0 {
		n.list = int32(len(t.lists))
		t.lists = append(t.lists, nil)
	}
	t.lists[n.list] = append(t.lists[n.list], value)
}

// link makes the trie ready for contained. Nothing may be added afterwards.
func (t *trie) link() {
	var queue []int32 // breadth first: a node's fail is nearer to the root than the node
	for n := t.nodes[0].child; n != 0; n = t.nodes[n].sibling {
		queue = append(queue, n)
	}
	for len(queue) > 0 {
		node := queue[0]
		queue = queue[1:]
		for n := t.nodes[node].child; n != 0; n = t.nodes[n].sibling {
			fail := t.advance(t.nodes[node].fail, t.nodes[n].b)
			t.nodes[n].fail = fail
			t.nodes[n].found = fail
			if t.nodes[fail].list == 0 {
				t.nodes[n].found = t.nodes[fail].found
			}
			queue = append(queue, n)
		}
	}
}

// advance returns the node of the longest suffix of what led to node and of b.
func (t *trie) advance(node int32, b byte) int32 {
	for {
		if next := t.step(node, b); next != 0 || node == 0 {
			return next
		}
		node = t.nodes[node].fail
	}
}

// contained calls each with the lists of all texts that name contains, of a linked trie.
func (t *trie) contained(name string, each func(values []int)) {
	node := int32(0)
	for i := range len(name) {
		node = t.advance(node, name[i])
		for n := node; n != 0; n = t.nodes[n].found {
			if list := t.nodes[n].list; list != 0 {
				each(t.lists[list])
			}
		}
	}
}

// A smallSet is one set of a batch.
type smallSet struct {
	SetResult
	name, private string
	size          int64 // of the set as it was looked at; -1: it has to be looked at
	taken         bool  // renamed by this call
	over          bool
	tries         int

	rename *redis.BoolCmd // of this round; nil: there is nothing to rename
	scan   *redis.ScanCmd
	found  []string // by scan
	failed []Failure
}

// fail ends a set with an error. The first error stays.
func (s *smallSet) fail(err error) {
	if s.over = true; s.Err == nil {
		s.Err = err
	}
}

// A TargetSet collects targets, each key once; the longest hold wins. The zero value is empty. Not
// safe for concurrent use.
type TargetSet struct {
	Targets []Target // in the order of their keys

	at map[string]int // where a key is in Targets
}

// NewTargetSet returns an empty set with room for n keys.
func NewTargetSet(n int) TargetSet {
	return TargetSet{make([]Target, 0, n), make(map[string]int, n)}
}

// Add adds a key, and returns where it is in Targets, and whether it was not there before.
func (s *TargetSet) Add(key string, hold time.Duration) (at int, added bool) {
	at, known := s.at[key]
	if !known {
		if s.at == nil {
			s.at = map[string]int{}
		}
		at = len(s.Targets)
		s.at[key] = at
		s.Targets = append(s.Targets, Target{Key: key})
	}
	s.Targets[at].Hold = max(s.Targets[at].Hold, hold)
	return at, !known
}

// Missing returns how many of the keys are not in the set.
func (s *TargetSet) Missing(keys []string) (n int) {
	for _, key := range keys {
		if _, known := s.at[key]; !known {
			n++
		}
	}
	return n
}

// Truncate drops all targets but the first n.
func (s *TargetSet) Truncate(n int) {
	for _, t := range s.Targets[n:] {
		delete(s.at, t.Key)
	}
	s.Targets = s.Targets[:n]
}
