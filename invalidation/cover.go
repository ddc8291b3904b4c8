package invalidation

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/unstale/unstale/protocol"
)

// maxCoverSteps bounds the comparison of all reads with all templates, as maxOriginSteps does for
// one key.
const maxCoverSteps = 1 << 22

// coverage compares the section reads with the templates of entities. A template covers a text of a
// read if every row of its entity reaches that text for all values. Literal text then meets the same
// text. Each hole meets, as a whole, one * or one name of the template for the same thing.
type coverage struct {
	*report
	advice *report
	m      *Map
	steps  int // left
}

// reportGaps reports the reads that no entity covers and the templates that reach no read. It gives
// advice about reads without from that several entities cover.
func (c *coverage) reportGaps(reads []compiledRead) {
	if len(reads) == 0 {
		return
	}
	for i := range reads {
		c.checkRead(&reads[i])
	}
	c.checkStamps()
	if c.steps <= 0 {
		first := reads[0]
		c.addFault(place{first.Line, first.Column}, first.Name, "not decided: the reads and the templates have too many ways to meet",
			"write fewer * in one pattern, or shorter lists of vars")
		return
	}
	for made := range madeOf(c.m) {
		t := made.t
		if len(t.reads) == 0 {
			c.reachValues(reads, made.of, made.kind, t)
		}
		if len(t.reads) == 0 {
			what := string(made.kind)
			if made.kind == KindStamp {
				what = "tag"
			}
			c.addFault(t.at, t.source, "this "+what+" of "+made.of.name+" reaches no read",
				"correct it, add the read, or remove it: a key that nobody stores need not be unlinked")
		}
	}
	c.checkIDs()
}

// reachValues finds the reads that a template reaches by listed values of holes only.
func (c *coverage) reachValues(reads []compiledRead, e *entity, kind MapNameKind, t *template) {
	for i := range reads {
		r := &reads[i]
		var try func(readVariant) bool
		try = func(text readVariant) bool {
			hole := text.listed(r.Holes)
			switch {
			case c.steps <= 0:
				return true
			case hole == noHole:
				c.align(text, e, t, kind, func(pairs []pair) bool {
					o := objections{coverage: c, read: r, root: e, of: e, t: t}
					if o.judge(pairs, nil); o.sameThing {
						t.reads = append(t.reads, r.Name)
					}
					return o.sameThing
				})
				return slices.Contains(t.reads, r.Name)
			}
			return slices.ContainsFunc(r.Holes[hole].Values, func(value string) bool { return try(text.put(hole, value)) })
		}
		for _, of := range r.ofKinds() {
			if !slices.Contains(of.kinds, kind) {
				continue
			}
			for _, text := range of.texts {
				_ = slices.ContainsFunc(text.variants, try) // the first is enough
			}
		}
	}
}

// A textsOf are texts of a read, with the kinds of templates that make them stale.
type textsOf struct {
	texts []readText
	kinds []MapNameKind
}

func (r *compiledRead) ofKinds() []textsOf {
	return []textsOf{{[]readText{r.key}, []MapNameKind{KindKey, KindPattern}}, {r.tags, []MapNameKind{KindStamp}}, {r.sets, []MapNameKind{KindSet}}}
}

// checkRead reports what a read lacks. It compares the read with every entity, since each may have
// templates that only this read needs.
func (c *coverage) checkRead(r *compiledRead) {
	var covering []string
	var inserts, list bool
	var nearest *miss
	misses := map[string]*miss{}
	for _, name := range c.m.names {
		found, lacking := c.covers(r, c.m.entities[name])
		nearest = nearest.orNearer(lacking)
		misses[name] = lacking
		if found == notCovered {
			continue
		}
		covering = append(covering, name)
		list = list || found == coveredAsList
		if len(r.From) == 0 || slices.Contains(r.From, name) {
			inserts = inserts || c.seesInserts(name)
		}
	}
	switch {
	case c.steps <= 0 || r.ExpiresOnly != "":
		return
	case len(covering) == 0 && len(r.From) == 0:
		c.addMiss(r, "no entity makes "+r.Name+" stale", nearest)
		return
	case len(r.From) == 0 && len(covering) > 1:
		c.advice.addFault(r.key.at, r.key.text, "rows of "+quoteList(covering)+" make "+r.Name+" stale, and a change that takes one of them away would not be noticed",
			"list those that it needs: from: ["+strings.Join(covering, ", ")+"]")
	}
	whole := true
	for _, name := range r.From {
		if !slices.Contains(covering, name) {
			whole = false
			m := misses[name]
			if m == nil {
				m = &miss{problem: c.similar(r), cure: "add a key or a pattern to " + name + ", or take it out of from"}
			}
			c.addMiss(r, name+" does not make "+r.Name+" stale", m)
		}
	}
	if whole && !inserts && (list || r.Lifetime.Negative > 0) {
		c.addFault(r.key.at, r.key.text, "a new row changes "+r.Name+" too, and the captures of "+quoteList(covering)+" leave inserts out",
			"add insert to on of one of them")
	}
}

func (c *coverage) addMiss(r *compiledRead, problem string, m *miss) {
	if m == nil {
		m = &miss{problem: c.similar(r), cure: "add the key to an entity that changes the value, or say expires: " + exampleExpires}
	}
	if m.problem != "" {
		problem += ": " + m.problem
	}
	c.addFault(r.key.at, r.key.text, problem, m.cure)
}

// similar names the template that is most like the key of a read, or returns "".
func (c *coverage) similar(r *compiledRead) string {
	texts := map[string]string{}
	for made := range madeOf(c.m) {
		if t := made.t; made.kind == KindKey || made.kind == KindPattern {
			texts[strings.ReplaceAll(t.shape(), "\x00", "*")] = strconv.Quote(t.source) + " of " + made.of.name + " in line " + strconv.Itoa(t.at.line)
		}
	}
	if like := c.nearest(r.key.variants[0].shape(r.Holes, "*"), slices.Sorted(maps.Keys(texts))); like != "" {
		return "it differs from " + texts[like]
	}
	return ""
}

// seesInserts reports whether new rows of an entity reach the outbox: it is captured with inserts,
// or not captured, and then the application writes the rows.
func (c *coverage) seesInserts(entity string) bool {
	captured := false
	for _, one := range c.m.captures {
		if one.Entity == entity {
			if captured = true; one.Insert {
				return true
			}
		}
	}
	return !captured
}

// A found is how an entity covers a read.
type found uint8

const (
	notCovered found = iota
	coveredByName
	coveredAsList // by a pattern or an index set
)

// A miss is why a template that nearly covers a read does not. Those of a lower rank are nearer.
type miss struct {
	rank          int
	problem, cure string
}

// orNearer returns the nearer of two misses, each of which may be nil.
func (m *miss) orNearer(other *miss) *miss {
	if m == nil || other != nil && other.rank < m.rank {
		return other
	}
	return m
}

// covers reports how rows of an entity make a read stale, or else what is nearest to it. Of several
// holes that are IDs of one entity, a row may be about any.
func (c *coverage) covers(r *compiledRead, root *entity) (how found, nearest *miss) {
	for _, others := range r.others() {
		made, lacking := c.coversBut(r, root, others)
		if made == notCovered {
			return notCovered, lacking
		}
		how = max(how, made)
	}
	return how, nil
}

// others returns, for each hole that shares an entity with others, those others; or one nil.
func (r *compiledRead) others() (all [][]int) {
	for n, hole := range r.Holes {
		var others []int
		for m, other := range r.Holes {
			if m != n && hole.Entity != "" && other.Entity == hole.Entity {
				others = append(others, m)
			}
		}
		if others != nil {
			all = append(all, others)
		}
	}
	if all == nil {
		return [][]int{nil}
	}
	return all
}

// coversBut does the work of covers for rows that are not about some holes. It compares all
// templates, even after one that covers, because each may reach the read.
func (c *coverage) coversBut(r *compiledRead, root *entity, others []int) (first found, nearest *miss) {
	for _, kind := range r.ofKinds() {
		for _, text := range kind.texts {
			how, some, lacks := coveredByName, false, ""
			for _, variant := range text.variants {
				made, lacking := c.meetsValues(r, variant, root, kind.kinds, others)
				if how = max(how, made); made != notCovered {
					some = true
				} else if lacks == "" {
					lacks = variant.shape(r.Holes, "")
				}
				nearest = nearest.orNearer(lacking)
			}
			switch {
			case some && lacks == "":
				if first == notCovered {
					first = how
				}
			case some:
				nearest = &miss{0, root.name + " does not reach " + strconv.Quote(lacks), "use the same var or the same list in both places"}
			}
		}
	}
	if first != notCovered {
		nearest = nil
	}
	return first, nearest
}

// meetsValues is like meets, and then accepts a text also if each listed value of a hole, in its
// place, makes a text that is met.
func (c *coverage) meetsValues(r *compiledRead, text readVariant, root *entity, kinds []MapNameKind, others []int) (how found, nearest *miss) {
	how, nearest = c.meets(r, text, root, root, nil, kinds, others)
	hole := text.listed(r.Holes)
	if how != notCovered || hole == noHole {
		return how, nearest
	}
	for i, value := range r.Holes[hole].Values {
		one := text.put(hole, value)
		made, lacking := c.meetsValues(r, one, root, kinds, others)
		switch {
		case made != notCovered:
			how = max(how, made)
			continue
		case i > 0 && (nearest == nil || nearest.rank > 1):
			nearest = &miss{1, root.name + " does not reach " + strconv.Quote(one.shape(r.Holes, "")), "add it, or take the value out of the list of {" + r.Holes[hole].Name + "}"}
		case nearest == nil:
			nearest = lacking
		}
		return notCovered, nearest
	}
	return how, nil
}

// listed returns the first hole of a text that has listed values, or noHole.
func (v readVariant) listed(holes []Hole) int {
	for _, p := range v {
		if p.hole != noHole && holes[p.hole].Values != nil {
			return p.hole
		}
	}
	return noHole
}

// put returns the text with a value in the place of a hole.
func (v readVariant) put(hole int, value string) (text readVariant) {
	for _, p := range v {
		if p.hole == hole {
			p = readPiece{text: value, hole: noHole}
		}
		text = text.with(p)
	}
	return text
}

// meets compares one text with the templates of an entity, and of those as which it expands. The
// rows are those of root; ids are the templates of the IDs on the way from there.
func (c *coverage) meets(r *compiledRead, text readVariant, root, e *entity, ids []*alias, kinds []MapNameKind, others []int) (how found, nearest *miss) {
	if c.steps--; c.steps <= 0 {
		return notCovered, nil
	}
	for kind, t := range e.kinds() {
		if !slices.Contains(kinds, kind) {
			continue
		}
		c.align(text, e, t, kind, func(pairs []pair) bool {
			o := objections{coverage: c, read: r, root: root, of: e, t: t, others: others}
			o.judge(pairs, ids)
			if o.sameThing && !slices.Contains(t.reads, r.Name) {
				t.reads = append(t.reads, r.Name)
			}
			if o.first == nil {
				switch {
				case how != notCovered:
				case kind == KindPattern || kind == KindSet:
					how = coveredAsList
				default:
					how = coveredByName
				}
				return true
			}
			nearest = nearest.orNearer(o.first)
			return false
		})
	}
	for i := range e.as {
		made, lacking := c.meets(r, text, root, e.as[i].target, append(slices.Clip(ids), &e.as[i]), kinds, others)
		if how == notCovered {
			how = made
		}
		nearest = nearest.orNearer(lacking)
	}
	return how, nearest
}

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
	a := alignment{coverage: c, entity: e, pieces: t.pieces(kind == KindPattern), text: text, found: found, values: map[int]string{}}
	if kind == KindStamp {
		a.text = readVariant{{text: protocol.StampPrefix, hole: noHole}}
		for _, p := range text {
			a.text = a.text.with(p)
		}
	}
	a.try(0, 0, 0)
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

// checkStamps reports tags whose tag version is also an exact key of an entity.
func (c *coverage) checkStamps() {
	var keys, tags []madeBy
	for made := range madeOf(c.m) {
		switch first := &made.t.parts[0]; {
		case made.t.tag:
			tags = append(tags, made)
		case (made.kind == KindKey || made.kind == KindStamp) && (first.slot != noSlot || strings.HasPrefix(first.text, protocol.StampPrefix) || strings.HasPrefix(protocol.StampPrefix, first.text)):
			keys = append(keys, made)
		}
	}
	for _, tag := range tags {
		if len(keys) == 0 || c.steps <= 0 {
			return
		}
		variants := tag.of.variants(tag.t)
		c.steps -= len(variants)
		for _, key := range keys {
			same := false
			for _, text := range variants {
				if !same {
					c.align(text, key.of, key.t, KindKey, func([]pair) bool { same = true; return true })
				}
			}
			if same {
				c.addFault(tag.t.at, tag.t.source, "its tag version is also the key "+strconv.Quote(key.t.source)+" of "+key.of.name+" in line "+strconv.Itoa(key.t.at.line),
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

// with returns the text with a piece behind it; literal pieces are joined, and empty ones left out.
func (v readVariant) with(p readPiece) readVariant {
	if p.hole == noHole && p.text == "" {
		return v
	}
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
	for made := range madeOf(c.m) {
		t := made.t
		if made.kind != KindKey || !slices.Contains(t.slots, idSlot) {
			continue
		}
		other := first[t.shape()]
		if other != nil && other != made.of {
			c.addFault(t.at, t.source, "the entities "+other.name+" and "+made.of.name+" make the same key of their own ids", "give one of them another key, or let it expand as the other: as: {"+other.name+": \"{id}\"}")
		}
		first[t.shape()] = made.of
	}
}
