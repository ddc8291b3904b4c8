package invalidation

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/unstale/unstale/protocol"
)

// inlineSlots is up to how many names an entity or a template costs no allocation.
const inlineSlots = 8

var errEmptyInPattern = errors.New("an empty value in a pattern would match too much")

// A combiner runs through the cartesian product of the lists of a choice in a scope whose slots are
// resolved, the last one fastest; lists that go together run as one. It keeps no list itself: what
// is stored behind a pointer lives on the heap, and so would the lists of every row.
type combiner struct {
	scope  *scope
	choice *choice
	index  [inlineSlots]int
	more   []int // the index of the axes beyond
}

// toFirst goes to the first combination, and returns false if there is none.
func (c *combiner) toFirst() bool {
	for _, n := range c.choice.slots {
		if v := &c.scope.slots[n]; v.state != present || len(v.list) == 0 {
			return false
		}
	}
	if n := len(c.choice.axes); n > len(c.index) {
		c.more = make([]int, n-len(c.index))
	}
	return true
}

// next goes to the next combination, and returns false behind the last one.
func (c *combiner) next() bool {
	for i, n := range slices.Backward(c.choice.axes) {
		at := c.at(i)
		if *at++; *at < len(c.scope.slots[n].list) {
			return true
		}
		*at = 0
	}
	return false
}

func (c *combiner) at(n int) *int {
	if n < len(c.index) {
		return &c.index[n]
	}
	return &c.more[n-len(c.index)]
}

// value returns the value of a slot of the choice.
func (c *combiner) value(slot int) string {
	return c.scope.slots[c.choice.slots[slot]].list[*c.at(c.choice.axis[slot])]
}

// renderExact appends every text that a template expands to in a scope whose slots are resolved.
func renderExact(dst []string, f *scope, t *template) []string {
	if len(t.slots) == 0 {
		return append(dst, t.parts[0].text)
	}
	c := combiner{scope: f, choice: &t.choice}
	var buf [256]byte
	for ok := c.toFirst(); ok; ok = c.next() {
		text := buf[:0]
		for i := range t.parts {
			if p := &t.parts[i]; p.slot == noSlot {
				text = append(text, p.text...)
			} else {
				text = append(text, c.value(p.slot)...)
			}
		}
		dst = append(dst, string(text))
	}
	return dst
}

// renderPatterns is like renderExact, for patterns: values match only themselves, and a pattern
// that is too wide is refused.
func renderPatterns(dst []string, f *scope, t *template, least int) ([]string, error) {
	if len(t.slots) == 0 { // the compiler has measured it
		return append(dst, t.parts[0].text), nil
	}
	c := combiner{scope: f, choice: &t.choice}
	var buf [256]byte
	for ok := c.toFirst(); ok; ok = c.next() {
		text, prefix := buf[:0], t.prefixSize
		for i := range t.parts {
			p := &t.parts[i]
			if p.slot == noSlot {
				text = append(text, p.text...)
				continue
			}
			v := c.value(p.slot)
			if v == "" {
				return nil, badParam(f.entity.slots[t.slots[p.slot]].name, errEmptyInPattern)
			}
			if i < t.prefixParts {
				prefix += len(v)
			}
			text = protocol.AppendEscaped(text, v)
		}
		if prefix < least {
			return nil, &RowError{Reason: PatternTooWide, Err: fmt.Errorf(
				"%q has %d bytes of literal text before its first wildcard, limits.pattern_prefix is %d", string(text), prefix, least)}
		}
		dst = append(dst, string(text))
	}
	return dst, nil
}

// Reserved entities are part of every map: their rows name what to unlink. A map cannot define
// them, because its names have no slash.
const (
	// KeyEntity has rows whose ID is an exact key.
	KeyEntity = "unstale/key"
	// PatternEntity has rows whose ID is a pattern.
	PatternEntity = "unstale/pattern"
	// EverythingParam is the parameter of a PatternEntity row. With the value true, the pattern may
	// match all keys of the map, and be shorter than limits.pattern_prefix.
	EverythingParam = "everything"
)

// IsReserved reports whether an entity is a reserved one.
func IsReserved(entity string) bool { return entity == KeyEntity || entity == PatternEntity }

var (
	keyEntity = &entity{
		name: KeyEntity, slots: []slot{{name: idName}},
		keys: []template{{source: "{id}", parts: []part{{slot: 0}}, choice: choice{slots: []int{idSlot}, axes: []int{idSlot}, axis: []int{0}}}},
	}
	patternEntity = &entity{name: PatternEntity, slots: []slot{{name: idName}}, declared: []string{EverythingParam}}
)

// expandPattern expands a row of PatternEntity.
func expandPattern(m *Map, row Row) (Plan, error) {
	g, err := protocol.CompileGlob(row.ID)
	if err != nil {
		return Plan{}, badParam(idName, err)
	}
	if err := refusePrivate(g.Prefix()); err != nil {
		return Plan{}, err
	}
	plan := Plan{Patterns: []string{row.ID}}
	if p, _ := row.Params.Get(EverythingParam); len(p.Values) == 1 && p.Values[0] == "true" {
		return plan, nil
	}
	problem := "matches all keys of the map"
	if n := len(g.Prefix()); n < m.limits.PatternPrefix {
		problem = fmt.Sprintf("has %d bytes of literal text before its first wildcard, and limits.pattern_prefix is %d", n, m.limits.PatternPrefix)
	} else if !matchesAll(m, g) {
		return plan, nil
	}
	return Plan{}, &RowError{Reason: PatternTooWide, Err: fmt.Errorf("%q %s; write more literal text, or set the parameter %s to true", row.ID, problem, EverythingParam)}
}

// refusePrivate refuses a row of a reserved entity whose names begin like unstale's own.
func refusePrivate(start string) error {
	for _, p := range private {
		if strings.HasPrefix(start, p.prefix) {
			return badParam(idName, fmt.Errorf("names that begin with %s are unstale's own: %s; name keys of the application", p.prefix, p.what))
		}
	}
	return nil
}

// filled makes each star of a glob match at least one byte, as values do.
var filled = strings.NewReplacer(`\\`, `\\`, `\*`, `\*`, "*", "?*")

// matchesAll reports whether a pattern matches all keys of a map.
func matchesAll(m *Map, g protocol.Glob) bool {
	some := false
	for _, n := range m.Names() {
		if n.Kind == KindStamp {
			continue
		}
		some = true
		if name, err := protocol.CompileGlob(filled.Replace(n.Glob)); err != nil || !g.Includes(name) {
			return false
		}
	}
	return some
}
