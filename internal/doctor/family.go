package doctor

import (
	"strings"
	"unicode"
)

const (
	// maxBranches is the number of names that a part may have before it counts as an ID.
	maxBranches = 24
	// maxParts is the number of parts of a name that distinguish families.
	maxParts = 8
	// maxNodes bounds all families together: beyond it, a new part counts as an ID.
	maxNodes = 4096
)

// anyPart represents IDs in the name of a family.
const anyPart = "*"

// A tree files names by their parts, and detects which parts are IDs: parts with a digit or with
// much text, and parts that have many names.
type tree struct {
	root  node
	nodes int
	full  bool // maxNodes has merged names that are not alike
}

type node struct {
	children map[string]*node
	folded   bool     // all children are merged into one, for IDs
	figures  *Figures // nil: no name ends here
}

// parts splits a name at colons.
func parts(name string) []string {
	list := strings.SplitN(name, ":", maxParts)
	for i, p := range list {
		if isID(p) || i == maxParts-1 && strings.Contains(p, ":") {
			list[i] = anyPart
		}
	}
	return list
}

// isID reports whether a part looks like an ID: it has a digit, or no readable word.
func isID(part string) bool {
	const longest = 24
	return len(part) > longest || strings.ContainsFunc(part, unicode.IsDigit) || part == anyPart
}

// file returns the figures of a name's family, which may be new.
func (t *tree) file(name string) *Figures {
	n := &t.root
	for _, part := range parts(name) {
		n = t.step(n, part)
	}
	if n.figures == nil {
		n.figures = &Figures{}
	}
	return n.figures
}

// step returns the child for a part. If there are too many children, it merges them into IDs.
func (t *tree) step(n *node, part string) *node {
	if n.folded {
		return n.children[anyPart]
	}
	if c, ok := n.children[part]; ok {
		return c
	}
	t.full = t.full || t.nodes >= maxNodes
	if len(n.children) >= maxBranches || t.nodes >= maxNodes && len(n.children) > 0 {
		t.fold(n)
		return n.children[anyPart]
	}
	if t.nodes >= maxNodes {
		part, n.folded = anyPart, true
	}
	if n.children == nil {
		n.children = map[string]*node{}
	}
	c := &node{}
	n.children[part] = c
	t.nodes++
	return c
}

// fold merges all children into one.
func (t *tree) fold(n *node) {
	all := &node{}
	for _, c := range n.children {
		t.merge(all, c)
	}
	t.nodes -= len(n.children) - 1
	n.children, n.folded = map[string]*node{anyPart: all}, true
}

// merge adds the figures of another node and its descendants.
func (t *tree) merge(into, from *node) {
	if from.figures != nil {
		if into.figures == nil {
			into.figures = &Figures{}
		}
		into.figures.add(from.figures)
	}
	for part, child := range from.children {
		if into.children == nil {
			into.children = map[string]*node{}
		}
		if have, ok := into.children[part]; ok {
			t.merge(have, child)
			t.nodes--
		} else {
			into.children[part] = child
		}
	}
	if into.folded = into.folded || from.folded; len(into.children) > maxBranches || into.folded && len(into.children) > 1 {
		t.fold(into)
	}
}

// each calls visit with each family, in random order.
func (t *tree) each(visit func(name string, f *Figures)) {
	var walk func(n *node, name string)
	walk = func(n *node, name string) {
		if n.figures != nil {
			visit(name, n.figures)
		}
		for part, c := range n.children {
			below := part
			if n != &t.root {
				below = name + ":" + part
			}
			walk(c, below)
		}
	}
	walk(&t.root, "")
}
