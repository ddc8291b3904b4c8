package invalidation

import (
	"slices"
	"strconv"
	"strings"

	"github.com/unstale/unstale/protocol"
)

// checkStamps reports tags whose tag version is also an exact key of an entity.
func (c *coverage) checkStamps() {
	type made struct {
		by *entity
		t  *template
	}
	var keys, tags []made
	for _, name := range c.m.names {
		e := c.m.entities[name]
		e.kinds(func(kind MapNameKind, t *template) {
			if len(t.parts) == 0 {
				return
			}
			switch first := &t.parts[0]; {
			case t.tag:
				tags = append(tags, made{e, t})
			case (kind == KindKey || kind == KindStamp) && (first.slot != noSlot || strings.HasPrefix(first.text, protocol.StampPrefix) || strings.HasPrefix(protocol.StampPrefix, first.text)):
				keys = append(keys, made{e, t})
			}
		})
	}
	for _, tag := range tags {
		if len(keys) == 0 || c.steps <= 0 {
			return
		}
		variants := tag.by.variants(tag.t)
		c.steps -= len(variants)
		for _, key := range keys {
			same := false
			for _, text := range variants {
				if !same {
					c.align(text, key.by, key.t, KindKey, func([]pair) bool { same = true; return true })
				}
			}
			if same {
				c.add(tag.t.at, tag.t.source, "its tag version is also the key "+strconv.Quote(key.t.source)+" of "+key.by.name+" in line "+strconv.Itoa(key.t.at.line),
					"rename the key: names that begin with "+protocol.StampPrefix+" belong to tags")
			}
		}
	}
}

// variants returns a template as texts whose holes are its slots. A slot with listed values becomes
// literal text, unless that makes too many texts.
func (e *entity) variants(t *template) []readVariant {
	all := []readVariant{nil}
	for _, p := range t.parts {
		pieces := []readPiece{{text: p.text, hole: noHole}}
		if p.slot != noSlot {
			n := t.slots[p.slot]
			pieces[0] = readPiece{hole: n}
			if each := e.slots[n].each; each != nil && len(all)*len(each) <= maxReadValues {
				pieces = nil
				for _, v := range each {
					pieces = append(pieces, readPiece{text: v, hole: noHole})
				}
			}
		}
		var longer []readVariant
		for _, v := range all {
			for _, piece := range pieces {
				longer = append(longer, v.with(piece))
			}
		}
		all = longer
	}
	return all
}

// with returns the text with a piece behind it; literal pieces are joined.
func (v readVariant) with(p readPiece) readVariant {
	v = slices.Clone(v)
	if last := len(v) - 1; p.hole == noHole && last >= 0 && v[last].hole == noHole {
		v[last].text += p.text
		return v
	}
	return append(v, p)
}

// checkIDs reports two entities that make the same key of their own IDs.
func (c *coverage) checkIDs() {
	first := map[string]*entity{}
	for _, name := range c.m.names {
		e := c.m.entities[name]
		e.kinds(func(kind MapNameKind, t *template) {
			if kind != KindKey || !slices.Contains(t.slots, idSlot) {
				return
			}
			other := first[t.shape()]
			if other != nil && other != e {
				c.add(t.at, t.source, "the entities "+other.name+" and "+name+" make the same key of their own ids", "give one of them another key, or let it expand as the other: as: {"+other.name+": \"{id}\"}")
			}
			first[t.shape()] = e
		})
	}
}
