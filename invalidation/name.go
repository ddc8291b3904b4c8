package invalidation

import (
	"slices"
	"strings"
	"time"

	"github.com/unstale/unstale/protocol"
)

// A MapNameKind is the kind of a [MapName].
type MapNameKind string

// The kinds of names that a map makes.
const (
	KindKey     MapNameKind = "key"
	KindStamp   MapNameKind = "stamp" // the key of a tag
	KindPattern MapNameKind = "pattern"
	KindSet     MapNameKind = "set"
)

// A MapName is a key, a tag version, a pattern or an index set that a map makes of the rows of an
// entity.
type MapName struct {
	Entity string
	Kind   MapNameKind
	Text   string // as written
	// with a * for each value of a row: it matches every result of Text
	Glob string
	Hold time.Duration // of the entity
	// Reads are the names of the reads that it reaches, in the order of the map. They include reads
	// that it reaches only for some rows.
	Reads []string
}

// Names returns what a map makes of rows: by entity, and for each entity keys, tag versions,
// patterns and sets. Aliases are left out: they make the same as their targets.
func (m *Map) Names() []MapName {
	var list []MapName
	for _, name := range m.names {
		list = append(list, m.entities[name].makes()...)
	}
	return list
}

// makes returns what an entity itself makes.
func (e *entity) makes() (list []MapName) {
	e.kinds(func(kind MapNameKind, t *template) { list = append(list, e.mapName(kind, t)) })
	return list
}

// kinds calls visit with every template and its kind, except those of aliases.
func (e *entity) kinds(visit func(MapNameKind, *template)) {
	for i := range e.keys {
		kind := KindKey
		if strings.HasPrefix(e.keys[i].widestName(), protocol.StampPrefix) {
			kind = KindStamp
		}
		visit(kind, &e.keys[i])
	}
	for i := range e.patterns {
		visit(KindPattern, &e.patterns[i])
	}
	for i := range e.sets {
		visit(KindSet, &e.sets[i])
	}
}

func (e *entity) mapName(kind MapNameKind, t *template) MapName {
	n := MapName{Entity: e.name, Kind: kind, Text: t.source, Glob: t.widestName(), Hold: e.hold, Reads: slices.Clone(t.reads)}
	if kind == KindPattern {
		n.Glob = t.widest()
	}
	return n
}

// widestName returns a glob of the possible names of a key or a set: only the values are wildcards.
func (t *template) widestName() string {
	var b strings.Builder
	for _, p := range t.parts {
		if p.slot == noSlot {
			b.WriteString(protocol.Escape(p.text))
		} else {
			b.WriteByte('*')
		}
	}
	return b.String()
}

// Lookups returns the lookups that templates use, each once, by the entities that use them.
func (m *Map) Lookups() []*Lookup {
	var list []*Lookup
	seen := map[*Lookup]bool{}
	for _, name := range m.names {
		for _, s := range m.entities[name].slots {
			if s.lookup != nil && !seen[s.lookup] {
				seen[s.lookup] = true
				list = append(list, s.lookup)
			}
		}
	}
	return list
}
