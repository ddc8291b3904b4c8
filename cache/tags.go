package cache

import (
	"sync/atomic"
	"weak"
)

// A tagCell is shared by all values of a tag.
type tagCell struct {
	name string
	gone atomic.Bool
}

// looks is how many cells a tagTable checks for each cell that it adds. With two, it would shrink
// no faster than it grows.
const looks = 4

// A tagTable finds the cells of tags that some value in L1 has. It removes unused cells in small
// steps, since no caller should wait for a pass over all of them. It has at most a few times as
// many cells as needed. The zero table is empty. The caller guards it.
type tagTable struct {
	cells map[string]weak.Pointer[tagCell]
	ring  []namedCell // all cells, and some that were dropped
	hand  int         // which one of ring is looked at next
}

type namedCell struct {
	tag  string
	cell weak.Pointer[tagCell]
}

// cell returns the cell of a tag.
func (t *tagTable) cell(tag string) *tagCell {
	if cell := t.cells[tag].Value(); cell != nil {
		return cell
	}
	cell := &tagCell{name: tag}
	if t.cells == nil {
		t.cells = map[string]weak.Pointer[tagCell]{}
	}
	t.cells[tag] = weak.Make(cell)
	t.ring = append(t.ring, namedCell{tag, t.cells[tag]})
	for range looks {
		t.look()
	}
	return cell
}

// missing returns how many bytes the cells of tags would add.
func (t *tagTable) missing(tags []string) (bytes int) {
	for _, tag := range tags {
		if t.cells[tag].Value() == nil {
			bytes += tagBytes + allocated(len(tag))
		}
	}
	return bytes
}

// look removes the next cell if no value has it.
func (t *tagTable) look() {
	if t.hand >= len(t.ring) {
		t.hand = 0
	}
	at, last := t.ring[t.hand], len(t.ring)-1
	switch current := t.cells[at.tag] == at.cell; {
	case current && at.cell.Value() != nil:
		t.hand++
		return
	case current:
		delete(t.cells, at.tag)
	}
	t.ring[t.hand], t.ring[last] = t.ring[last], namedCell{}
	t.ring = t.ring[:last]
}

// drop ends all values of a tag.
func (t *tagTable) drop(tag string) {
	if cell := t.cells[tag].Value(); cell != nil {
		cell.gone.Store(true)
	}
	delete(t.cells, tag)
}
