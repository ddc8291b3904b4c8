package invalidation

import (
	"strings"

	"github.com/unstale/unstale/protocol"
)

// A template is compiled: variables of the map are resolved, names are numbers of slots.
type template struct {
	source string // as written
	at     place
	tag    bool // of the list tags
	parts  []part
	// The slots of the choice are those that the parts use.
	choice
	// For a pattern: wild reports whether it has a wildcard. prefixSize is the length of the
	// unescaped literal text before the first wildcard. The slots before it are among the first
	// prefixParts parts.
	wild                    bool
	prefixSize, prefixParts int
	// reads are the names of the reads that it reaches, in the order of the map.
	reads []string
}

// A part is literal text or, if slot is not negative, the value of slots[slot], which is chosen
// with axes[axis].
type part struct {
	text       string
	slot, axis int
}

const noSlot = -1

// A binding is the meaning of a name at compile time: a value of vars, or a slot of the entity.
type binding struct {
	value string
	slot  int
}

// newTemplate compiles segments whose names are all bound. In a pattern the values of vars are
// escaped: only what the template itself says is special.
func newTemplate(source string, segments []segment, bound map[string]binding, pattern bool) template {
	t := template{source: source}
	var prefix prefixMeter
	for _, s := range segments {
		text, slot := s.text, noSlot
		if s.name != "" {
			b := bound[s.name]
			text, slot = b.value, b.slot
			if pattern && slot == noSlot {
				text = protocol.Escape(text)
			}
		}
		if slot == noSlot {
			t.addLiteral(text)
			prefix.literal(text)
		} else {
			t.addSlot(slot)
			prefix.slot(len(t.parts))
		}
	}
	t.wild, t.prefixSize, t.prefixParts = prefix.wild, prefix.size, prefix.parts
	return t
}

func (t *template) addLiteral(text string) {
	if n := len(t.parts); n > 0 && t.parts[n-1].slot == noSlot {
		t.parts[n-1].text += text
		return
	}
	t.parts = append(t.parts, part{text: text, slot: noSlot})
}

func (t *template) addSlot(slot int) {
	for i, known := range t.slots {
		if known == slot {
			t.parts = append(t.parts, part{slot: i})
			return
		}
	}
	t.parts = append(t.parts, part{slot: len(t.slots)})
	t.slots = append(t.slots, slot)
}

// join finds which of its slots go together, when all are known.
func (t *template) join(slots []slot) {
	t.choice.join(slots)
	for i := range t.parts {
		if p := &t.parts[i]; p.slot != noSlot {
			p.axis = t.of(p.slot)
		}
	}
}

// shape returns the template with every slot alike: two templates of one shape can name the same
// key.
func (t *template) shape() string {
	var b strings.Builder
	for _, p := range t.parts {
		if p.slot == noSlot {
			b.WriteString(p.text)
		} else {
			b.WriteByte(0)
		}
	}
	return b.String()
}

// A prefixMeter measures the literal prefix of a pattern.
type prefixMeter struct {
	size, parts int
	wild        bool
}

func (m *prefixMeter) literal(text string) {
	for i := 0; i < len(text) && !m.wild; i++ {
		switch text[i] {
		case '*', '?':
			m.wild = true
			return
		case '\\':
			i++
		}
		m.size++
	}
}

func (m *prefixMeter) slot(parts int) {
	if !m.wild {
		m.parts = parts
	}
}
