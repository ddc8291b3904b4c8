package invalidation

import (
	"slices"
	"time"
)

// An entity is a compiled entity of a map.
type entity struct {
	name string
	// slots are the names that templates use. The first is the id.
	slots []slot
	// keys are exact keys, and behind them the stamps of tags.
	keys, patterns, sets []template
	as                   []alias
	repeat               []time.Duration
	hold                 time.Duration
	// asks is set where a template uses a lookup, here or in an entity that this one expands as.
	asks bool
	// declared are the names that a row of this entity may give, sorted.
	declared []string
}

// idSlot is the slot of the id.
const idSlot = 0

// A slot is where the values of one name come from: the row, an enumeration, or a lookup.
type slot struct {
	name string
	// each are the values of an enumeration.
	each []string
	// lookup runs where the row does not give the name; by are the slots that it is asked by.
	lookup   *Lookup
	by       []int
	optional bool
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

// templates calls visit with every template but those of aliases.
func (e *entity) templates(visit func(*template)) {
	for _, list := range [][]template{e.keys, e.patterns, e.sets} {
		for i := range list {
			visit(&list[i])
		}
	}
}
