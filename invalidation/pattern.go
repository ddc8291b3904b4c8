package invalidation

import "strings"

// A MapPattern is one of a map's patterns.
type MapPattern struct {
	Entity string
	Text   string // as written
	// with a * for each value of a row: it matches every key that the pattern can match
	Glob string
}

// Patterns returns the patterns of a map, by entity and then as written.
func (m *Map) Patterns() []MapPattern {
	var list []MapPattern
	for _, name := range m.names {
		for i := range m.entities[name].patterns {
			t := &m.entities[name].patterns[i]
			list = append(list, MapPattern{Entity: name, Text: t.source, Glob: t.widest()})
		}
	}
	return list
}

// widest returns a pattern with a * in the place of each slot.
func (t *template) widest() string {
	var b strings.Builder
	for _, p := range t.parts {
		if p.slot == noSlot {
			b.WriteString(p.text)
		} else {
			b.WriteByte('*')
		}
	}
	return b.String()
}
