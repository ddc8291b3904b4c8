package invalidation

import (
	"slices"
	"time"
)

// A Description lists what rows of an entity make, and the origins of the values.
type Description struct {
	Entity string
	// Comment is the comment above the entity in the map, without #.
	Comment string
	// Params are the names that a row may give, sorted, those of the entities included as which it
	// expands.
	Params []string
	// Names are the names in the templates, the ID first.
	Names []NameSource
	// Makes are keys, tag versions, patterns and sets of the entity itself.
	Makes []MapName
	// As are the entities as which a row expands too.
	As     []AliasSource
	Repeat []time.Duration
	Hold   time.Duration
}

// A NameSource is the origin of the values of a name: the row, unless a field says otherwise.
type NameSource struct {
	Name string
	// Each are the values of an enumeration.
	Each []string
	// Lookup is asked where the row does not give the name, or always.
	Lookup *Lookup
	// With are the names whose values go together with those of this one.
	With []string
	// Default are the values where the row does not give the name; nil: none.
	Default []string
	// Optional reports whether templates that use the name make nothing where the row does not give
	// it.
	Optional bool
}

// An AliasSource is an entity as which rows expand, with the template of its ids.
type AliasSource struct{ Entity, ID string }

// Describe describes an entity, also a reserved one, and reports whether the map has it.
func (m *Map) Describe(name string) (Description, bool) {
	e := m.entities[name]
	if e == nil {
		return Description{}, false
	}
	d := Description{Entity: name, Comment: e.comment, Params: slices.Clone(e.declared), Makes: e.makes(), Repeat: slices.Clone(e.repeat), Hold: e.hold}
	for n, s := range e.slots {
		d.Names = append(d.Names, NameSource{s.name, slices.Clone(s.each), e.lookupOf(n), e.alongWith(n), slices.Clone(s.fallback), s.optional})
	}
	for _, a := range e.as {
		d.As = append(d.As, AliasSource{a.target.name, a.id.source})
	}
	return d, true
}

// alongWith returns the names whose values go together with those of a slot.
func (e *entity) alongWith(n int) (names []string) {
	for _, other := range e.group(e.slots[n].lead) {
		if other != n {
			names = append(names, e.slots[other].name)
		}
	}
	return names
}
