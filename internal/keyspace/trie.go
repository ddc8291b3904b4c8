package keyspace

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

// add files value under text.
func (t *trie) add(text string, value int) {
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
