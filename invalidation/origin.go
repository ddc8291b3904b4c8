package invalidation

import (
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

// An Origin is a kind of row that reaches a key.
type Origin struct {
	// Entity is the entity of the row.
	Entity string
	// ID is the row's, or empty where any will do.
	ID string
	// Params are values that the row gives, among others, or that the lookups of those names find:
	// by name, sorted. Names that are not here may have any value.
	Params Params
	// Via are the entities through which the row expands, in order; empty for its own entity.
	Via []string
	// By is the name that reaches the key. The key can also be a member of an index set that is
	// unlinked; a map has no information about members.
	By MapName
}

// maxOriginSteps bounds the work for one key: so often a piece of a template is tried at a place of
// the key. An entity counts as noteSteps.
const maxOriginSteps, noteSteps = 1 << 17, 16

// Origins returns which rows reach a key: rows that make it as an exact key, as a tag version or as
// an index set, or a pattern that matches it. A text that several values can make, such as
// a:{x}:{y}, has an origin for each way to split it. Origins are in the order of entities and
// templates, at most most of them; the other result reports whether these are all. They include
// rows that Expand refuses, for example for a pattern that is too wide.
func (m *Map) Origins(key string, most int) ([]Origin, bool) {
	o := originSearch{m: m, most: most, seen: map[string]bool{}}
	o.budget.steps = maxOriginSteps
	for made := range madeOf(m) {
		o.match(made.of, made.t, made.kind == KindPattern, key, func(values map[string]string) {
			o.addRows(made.of, values, nil, made.of.mapName(made.kind, made.t))
		})
	}
	return o.found, !o.cut && o.steps > 0
}

// An originSearch looks for the rows that reach a key.
type originSearch struct {
	budget
	m     *Map
	most  int
	found []Origin
	seen  map[string]bool
	cut   bool // there are more than most
}

// A wanted is the values that a row must give for a name.
type wanted map[string][]string

// addRows adds the rows of an entity with the given values, and those that expand as it.
func (o *originSearch) addRows(e *entity, values map[string]string, below wanted, made MapName, via ...string) {
	if o.steps -= noteSteps; o.steps <= 0 {
		return
	}
	need := maps.Clone(below)
	if need == nil {
		need = wanted{}
	}
	id := values[idName]
	for name, v := range values {
		if name != idName && !slices.Contains(need[name], v) {
			need[name] = append(slices.Clip(need[name]), v)
		}
	}
	o.addOrigin(Origin{Entity: e.name, ID: id, Params: need.params(), Via: slices.Clone(via), By: made})
	for _, name := range o.m.names {
		source := o.m.entities[name]
		for i := range source.as {
			a := &source.as[i]
			if a.target != e || o.cut {
				continue
			}
			path := append([]string{e.name}, via...)
			if id == "" {
				o.addRows(source, nil, need, made, path...)
				continue
			}
			o.match(source, &a.id, false, id, func(values map[string]string) { o.addRows(source, values, need, made, path...) })
		}
	}
}

func (w wanted) params() (all Params) {
	for _, name := range slices.Sorted(maps.Keys(w)) {
		all = append(all, Param{Name: name, Values: w[name], List: len(w[name]) > 1})
	}
	return all
}

func (o *originSearch) addOrigin(found Origin) {
	text := found.identity()
	if o.cut || o.seen[text] {
		return
	}
	if len(o.found) == o.most {
		o.cut = true
		return
	}
	o.seen[text] = true
	o.found = append(o.found, found)
}

// identity tells an origin from others.
func (o *Origin) identity() string {
	all := []string{o.Entity, o.ID, string(o.By.Kind), o.By.Entity, o.By.Text}
	all = append(all, o.Via...)
	for _, p := range o.Params {
		all = append(append(all, p.Name), p.Values...)
	}
	return Need{By: all}.Key()
}

// A budget bounds the work of finding the values with which templates make texts.
type budget struct{ steps int }

// match calls found with each choice of values with which a template makes a text, or a pattern
// that matches it: see named.
func (b *budget) match(e *entity, t *template, pattern bool, text string, found func(values map[string]string)) {
	w := matching{budget: b, entity: e, pieces: t.pieces(pattern), text: text, found: found, pattern: pattern, values: map[int]string{}}
	w.try(0, 0)
}

// A piece is a literal text, a wildcard, or the value of a slot.
type piece struct {
	slot int
	text string
	wild byte // * or ?; 0: none
}

// pieces splits a template, whose literal text is that of a pattern or is as it is.
func (t *template) pieces(pattern bool) (all []piece) {
	for _, p := range t.parts {
		switch {
		case p.slot != noSlot:
			all = append(all, piece{slot: t.slots[p.slot]})
		case pattern:
			all = append(all, globPieces(p.text)...)
		default:
			all = append(all, piece{slot: noSlot, text: p.text})
		}
	}
	return all
}

// globPieces splits the literal text of a pattern, in which a backslash quotes the next character.
func globPieces(text string) (all []piece) {
	var literal strings.Builder
	flush := func() {
		if literal.Len() > 0 {
			all = append(all, piece{slot: noSlot, text: literal.String()})
			literal.Reset()
		}
	}
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '*' || c == '?':
			flush()
			all = append(all, piece{slot: noSlot, wild: c})
		case c == '\\' && i+1 < len(text):
			i++
			literal.WriteByte(text[i])
		default:
			literal.WriteByte(c)
		}
	}
	flush()
	return all
}

// A matching is the work on one template and one text.
type matching struct {
	*budget
	entity  *entity
	pieces  []piece
	text    string
	pattern bool
	values  map[int]string
	found   func(map[string]string)
}

// try matches the pieces from the n-th on with the text from a place on.
func (w *matching) try(n, at int) {
	if w.steps--; w.steps <= 0 {
		return
	}
	if n == len(w.pieces) {
		if at == len(w.text) {
			w.found(w.named())
		}
		return
	}
	p, rest := w.pieces[n], w.text[at:]
	bound, known := w.values[p.slot]
	switch {
	case p.wild == '?':
		if rest != "" {
			w.try(n+1, at+1)
		}
	case p.wild == '*':
		w.ends(n, at, 0, func(end int) { w.try(n+1, end) })
	case p.slot == noSlot:
		if strings.HasPrefix(rest, p.text) {
			w.try(n+1, at+len(p.text))
		}
	case known:
		if strings.HasPrefix(rest, bound) {
			w.try(n+1, at+len(bound))
		}
	default:
		w.bind(n, at)
	}
}

// bind tries the values of a slot that is not known yet.
func (w *matching) bind(n, at int) {
	number := w.pieces[n].slot
	defer delete(w.values, number)
	if each := w.entity.slots[number].each; each != nil {
		for _, v := range each {
			if strings.HasPrefix(w.text[at:], v) && (v != "" || !w.pattern) {
				w.values[number] = v
				w.try(n+1, at+len(v))
			}
		}
		return
	}
	least := 0
	if number == idSlot || w.pattern {
		least = 1
	}
	w.ends(n, at, least, func(end int) {
		// rows have whole characters
		if w.values[number] = w.text[at:end]; utf8.ValidString(w.text[at:end]) {
			w.try(n+1, end)
		}
	})
}

// ends calls visit with the places where a piece of any length may end, so far as what follows it
// tells.
func (w *matching) ends(n, at, least int, visit func(end int)) {
	if n+1 == len(w.pieces) {
		if at+least <= len(w.text) {
			visit(len(w.text))
		}
		return
	}
	next := w.pieces[n+1].text
	for end := at + least; end <= len(w.text) && w.steps > 0; end++ {
		i := strings.Index(w.text[end:], next)
		if i < 0 {
			return
		}
		end += i
		visit(end)
	}
}

// named returns the values that a row must give, by their names: those of enumerations are the
// map's.
func (w *matching) named() map[string]string {
	all := make(map[string]string, len(w.values))
	for n, v := range w.values {
		if s := &w.entity.slots[n]; s.each == nil {
			all[s.name] = v
		}
	}
	return all
}
