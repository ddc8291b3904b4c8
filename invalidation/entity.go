package invalidation

import (
	"iter"
	"slices"
	"time"
)

// An entity is a compiled entity of a map.
type entity struct {
	name, comment string
	// slots are the names that templates use. The first is the id.
	slots []slot
	// keys are exact keys, followed by the keys of tag versions.
	keys, patterns, sets []template
	as                   []alias
	repeat               []time.Duration
	hold                 time.Duration
	// asks is set where a template, or an id as which it expands, uses a lookup, here or in an
	// entity that this one expands as.
	asks bool
	// declared are the names that a row of this entity may give, sorted.
	declared []string
	intID    bool // the IDs have the type int
	captured bool // triggers write its rows, whose IDs are what the database has, such as ""
}

// idSlot is the slot of the id.
const idSlot = 0

// A slot is where the values of one name come from: the row, an enumeration, or a lookup.
type slot struct {
	name string
	// each are the values of an enumeration.
	each []string
	// fallback are the values where the row does not give the name; nil: none.
	fallback []string
	// lookup runs where the row does not give the name, or always; by are the slots that it is
	// asked by.
	lookup   *Lookup
	by       choice
	optional bool
	// together is set where the values go along with those of other slots, the n-th with the n-th.
	// lead is the one for all of which what is said above stands, or the slot's own number; with
	// are the others, and column is which value of a lookup's row is this one's.
	together bool
	lead     int
	with     []int
	column   int
}

// noID reports whether id is none: an empty ID is one where the database has it.
func (e *entity) noID(id string) bool { return id == "" && (!e.captured || e.intID) }

// idInPattern returns the first pattern of the entity with its ID, or "".
func (e *entity) idInPattern() string {
	i := slices.IndexFunc(e.patterns, func(t template) bool { return slices.Contains(t.slots, idSlot) })
	if i < 0 {
		return ""
	}
	return e.patterns[i].source
}

// lookupOf returns the lookup that finds the values of a slot, or nil.
func (e *entity) lookupOf(n int) *Lookup { return e.slots[e.slots[n].lead].lookup }

// group returns the slots whose values go together with those of a lead, which is the first of
// them.
func (e *entity) group(lead int) []int { return append([]int{lead}, e.slots[lead].with...) }

// A choice is the set of slots that have one value each in a text or in a question.
type choice struct {
	// slots are distinct, in order of first use.
	slots []int
	// axes are the slots that are chosen independently: all, or one per group if values go
	// together. axis has the number of the axis for each slot.
	axes, axis []int
}

// join finds the axes, when all slots are known.
func (c *choice) join(slots []slot) {
	c.axes, c.axis = nil, make([]int, len(c.slots))
	for i, n := range c.slots {
		c.axis[i] = slices.IndexFunc(c.axes, func(axis int) bool { return slots[axis].lead == slots[n].lead })
		if c.axis[i] < 0 {
			c.axis[i], c.axes = len(c.axes), append(c.axes, n)
		}
	}
}

// An alias expands the row as another entity too.
type alias struct {
	target *entity
	id     template
}

// declares reports whether a row of the entity may give a name.
func (e *entity) declares(name string) bool {
	_, declared := slices.BinarySearch(e.declared, name)
	return declared
}

// templates returns every template, those of aliases last.
func (e *entity) templates() iter.Seq[*template] {
	return func(yield func(*template) bool) {
		for _, list := range [][]template{e.keys, e.patterns, e.sets} {
			for i := range list {
				if !yield(&list[i]) {
					return
				}
			}
		}
		for i := range e.as {
			if !yield(&e.as[i].id) {
				return
			}
		}
	}
}
