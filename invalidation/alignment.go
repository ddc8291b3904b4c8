package invalidation

import (
	"slices"
	"strings"

	"github.com/unstale/unstale/protocol"
)

// A pair is a hole that meets a name of a template, or with noSlot a wildcard.
type pair struct{ hole, slot int }

// An alignment is the work on one text and one template.
type alignment struct {
	*coverage
	entity *entity
	pieces []piece
	text   readVariant
	pairs  []pair
	values map[int]string    // of names that meet literal text
	found  func([]pair) bool // true: enough
	enough bool
}

// align calls found with each way in which a template meets a text, until it returns true.
func (c *coverage) align(text readVariant, e *entity, t *template, kind MapNameKind, found func([]pair) bool) {
	if c.steps <= 0 {
		return
	}
	a := alignment{coverage: c, entity: e, text: text, found: found, values: map[int]string{}}
	if kind == KindStamp {
		a.text = prefixed(protocol.StampPrefix, text)
	}
	for _, p := range t.parts {
		switch {
		case p.slot != noSlot:
			a.pieces = append(a.pieces, piece{slot: t.slots[p.slot]})
		case kind == KindPattern:
			a.pieces = append(a.pieces, globPieces(p.text)...)
		default:
			a.pieces = append(a.pieces, piece{slot: noSlot, text: p.text})
		}
	}
	a.try(0, 0, 0)
}

// prefixed returns a text with a literal prefix.
func prefixed(prefix string, text readVariant) readVariant {
	if len(text) > 0 && text[0].hole == noHole {
		text = slices.Clone(text)
		text[0].text = prefix + text[0].text
		return text
	}
	return append(readVariant{{text: prefix, hole: noHole}}, text...)
}

// try compares the pieces from the n-th on with the text from a byte of a piece on.
func (a *alignment) try(n, at, skip int) {
	if a.steps--; a.steps <= 0 || a.enough {
		return
	}
	if at < len(a.text) && a.text[at].hole == noHole && skip == len(a.text[at].text) {
		at, skip = at+1, 0
	}
	if n == len(a.pieces) {
		if at == len(a.text) {
			a.enough = a.found(slices.Clone(a.pairs))
		}
		return
	}
	p, rest, hole := a.pieces[n], "", noHole
	if at < len(a.text) {
		if hole = a.text[at].hole; hole == noHole {
			rest = a.text[at].text[skip:]
		}
	}
	switch {
	case p.wild == '*':
		a.star(n, at, skip)
	case p.wild == '?':
		if rest != "" {
			a.try(n+1, at, skip+1)
		}
	case p.slot == noSlot:
		if strings.HasPrefix(rest, p.text) && rest != "" {
			a.try(n+1, at, skip+len(p.text))
		}
	case hole != noHole:
		a.pair(pair{hole, p.slot}, func() { a.try(n+1, at+1, 0) })
	case rest != "":
		a.literal(p.slot, rest, func(size int) { a.try(n+1, at, skip+size) })
	}
}

// star lets a * take nothing, or more and more.
func (a *alignment) star(n, at, skip int) {
	before := len(a.pairs)
	for a.steps > 0 && !a.enough {
		a.try(n+1, at, skip)
		switch {
		case at == len(a.text):
			a.pairs = a.pairs[:before]
			return
		case a.text[at].hole != noHole:
			a.pairs = append(a.pairs, pair{a.text[at].hole, noSlot})
			at, skip = at+1, 0
		case skip < len(a.text[at].text):
			skip++
		default:
			at, skip = at+1, 0
		}
	}
}

// pair goes on if a hole and a name meet each other wherever they are used.
func (a *alignment) pair(p pair, next func()) {
	if _, literal := a.values[p.slot]; literal {
		return
	}
	for _, other := range a.pairs {
		if other.slot != noSlot && (other.hole == p.hole) != (other.slot == p.slot) {
			return
		}
	}
	a.pairs = append(a.pairs, p)
	next()
	a.pairs = a.pairs[:len(a.pairs)-1]
}

// literal goes on with each listed value of a name that the text begins with.
func (a *alignment) literal(slot int, rest string, next func(size int)) {
	if slices.ContainsFunc(a.pairs, func(p pair) bool { return p.slot == slot }) {
		return
	}
	before, known := a.values[slot]
	for _, v := range a.entity.slots[slot].each {
		if v != "" && strings.HasPrefix(rest, v) && (!known || v == before) {
			a.values[slot] = v
			next(len(v))
		}
	}
	if delete(a.values, slot); known {
		a.values[slot] = before
	}
}
