package invalidation

import (
	"errors"
	"fmt"
)

// inlineSlots is up to how many names an entity or a template costs no allocation.
const inlineSlots = 8

var errEmptyInPattern = errors.New("an empty value in a pattern would match too much")

// render appends every text that a template expands to in a frame whose slots are resolved: the cartesian product
// over its slots, the last one fastest. Patterns come with their limits; for exact text limits is nil.
func (x *expansion) render(dst []string, f *frame, t *template, limits *Limits) ([]string, error) {
	if len(t.slots) == 0 {
		return x.renderLiteral(dst, t, limits)
	}
	var listBuf [inlineSlots][]string
	var indexBuf [inlineSlots]int
	lists, index := listBuf[:0], indexBuf[:]
	for _, n := range t.slots {
		v := &f.slots[n]
		if v.state != present || len(v.list) == 0 {
			return dst, nil
		}
		lists = append(lists, v.list)
	}
	if len(lists) > len(index) {
		index = make([]int, len(lists))
	}
	var buf [256]byte
	for {
		text := buf[:0]
		if limits == nil {
			text = t.appendText(text, lists, index)
		} else {
			var err error
			if text, err = t.appendPattern(text, f, lists, index, limits); err != nil {
				return nil, err
			}
		}
		dst = append(dst, string(text))
		if !advance(index, lists) {
			return dst, nil
		}
	}
}

// renderLiteral is render for a template without names: it costs nothing.
func (x *expansion) renderLiteral(dst []string, t *template, limits *Limits) ([]string, error) {
	if limits != nil && t.prefixSize < limits.PatternPrefix {
		return nil, tooWide(t.source, t.prefixSize, limits)
	}
	return append(dst, t.parts[0].text), nil
}

// advance steps to the next combination, and returns false behind the last one.
func advance(index []int, lists [][]string) bool {
	for i := len(lists) - 1; i >= 0; i-- {
		if index[i]++; index[i] < len(lists[i]) {
			return true
		}
		index[i] = 0
	}
	return false
}

func (t *template) appendText(dst []byte, lists [][]string, index []int) []byte {
	for i := range t.parts {
		if p := &t.parts[i]; p.slot == noSlot {
			dst = append(dst, p.text...)
		} else {
			dst = append(dst, lists[p.slot][index[p.slot]]...)
		}
	}
	return dst
}

func (t *template) appendPattern(dst []byte, f *frame, lists [][]string, index []int, limits *Limits) ([]byte, error) {
	prefix := t.prefixSize
	for i := range t.parts {
		p := &t.parts[i]
		if p.slot == noSlot {
			dst = append(dst, p.text...)
			continue
		}
		v := lists[p.slot][index[p.slot]]
		if v == "" {
			return nil, badParam(f.entity.slots[t.slots[p.slot]].name, errEmptyInPattern)
		}
		if i < t.prefixParts {
			prefix += len(v)
		}
		dst = appendEscaped(dst, v)
	}
	if prefix < limits.PatternPrefix {
		return nil, tooWide(string(dst), prefix, limits)
	}
	return dst, nil
}

func tooWide(pattern string, prefix int, limits *Limits) error {
	return &RowError{Reason: PatternTooWide, Err: fmt.Errorf(
		"%q has %d bytes of literal text before its first wildcard, limits.pattern_prefix is %d", pattern, prefix, limits.PatternPrefix)}
}
