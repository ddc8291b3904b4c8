package invalidation

import (
	"errors"
	"fmt"
)

// inlineSlots is up to how many names an entity or a template costs no allocation.
const inlineSlots = 8

var errEmptyInPattern = errors.New("an empty value in a pattern would match too much")

// A combiner runs through the cartesian product of the lists that a template uses, the last one fastest.
type combiner struct {
	lists    [][]string
	index    []int
	listBuf  [inlineSlots][]string
	indexBuf [inlineSlots]int
}

// start goes to the first combination of a template in a frame whose slots are resolved, and returns false if there is
// none.
func (c *combiner) start(f *frame, t *template) bool {
	c.lists, c.index = c.listBuf[:0], c.indexBuf[:]
	for _, n := range t.slots {
		v := &f.slots[n]
		if v.state != present || len(v.list) == 0 {
			return false
		}
		c.lists = append(c.lists, v.list)
	}
	if len(c.lists) > len(c.index) {
		c.index = make([]int, len(c.lists))
	}
	return true
}

// next goes to the next combination, and returns false behind the last one.
func (c *combiner) next() bool {
	for i := len(c.lists) - 1; i >= 0; i-- {
		if c.index[i]++; c.index[i] < len(c.lists[i]) {
			return true
		}
		c.index[i] = 0
	}
	return false
}

func (c *combiner) value(n int) string { return c.lists[n][c.index[n]] }

// renderExact appends every text that a template expands to in a frame whose slots are resolved.
func renderExact(dst []string, f *frame, t *template) []string {
	if len(t.slots) == 0 {
		return append(dst, t.parts[0].text)
	}
	var c combiner
	var buf [256]byte
	for ok := c.start(f, t); ok; ok = c.next() {
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

// renderPatterns is renderExact for patterns: values match only themselves, and a pattern that is too wide is refused.
func renderPatterns(dst []string, f *frame, t *template, least int) ([]string, error) {
	if len(t.slots) == 0 { // the compiler has measured it
		return append(dst, t.parts[0].text), nil
	}
	var c combiner
	var buf [256]byte
	for ok := c.start(f, t); ok; ok = c.next() {
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
			text = appendEscaped(text, v)
		}
		if prefix < least {
			return nil, &RowError{Reason: PatternTooWide, Err: fmt.Errorf(
				"%q has %d bytes of literal text before its first wildcard, limits.pattern_prefix is %d", text, prefix, least)}
		}
		dst = append(dst, string(text))
	}
	return dst, nil
}
