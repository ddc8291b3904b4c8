package draft

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
)

// A Family is a set of keys that differ only in values, such as shop:product:<number>.
type Family struct {
	Family string `json:"family"`
	Keys   int    `json:"keys"`
	Entity string `json:"entity,omitempty"` // that reaches it, or ""
	// Kind is keys or patterns, and Template what reaches the family there.
	Kind     string `json:"kind,omitempty"`
	Template string `json:"template,omitempty"`

	tokens []token
}

const (
	// leastPrefix is how many bytes of literal text a pattern begins with, as the map requires.
	leastPrefix = 8
	// separators are between the words and the values of keys.
	separators = ":/._-|#~{"
	// mostTokens is how many parts of a key are looked at. The rest is one value.
	mostTokens = 40
)

// A token is a part of a key: text that all keys of a family have, or the kind of a value.
type token struct {
	text string
	kind string // "", word, or the kind of a value: number, hex, uuid, text
}

var (
	segments  = regexp.MustCompile(`[-\w\x{80}-\x{10FFFF}]+|[\x21-\x7e]`)
	uuidText  = regexp.MustCompile(`^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)
	hexText   = regexp.MustCompile(`^[0-9a-f]{8,}$`) // as IDs are spelled
	number    = regexp.MustCompile(`^(0|[1-9][0-9]{0,19})$`)
	plainWord = regexp.MustCompile(`^[A-Za-z]+([_-][A-Za-z]+)*$`)
	numbered  = regexp.MustCompile(`^([A-Za-z]+(?:[_-][A-Za-z]+)*)([_-]?)([0-9]+)$`)
	// ownKeys are keys of unstale and its readers.
	ownKeys = regexp.MustCompile(`^(unstale:|lock:(fill|hold):|stamp:)`)
)

// vocabulary are words of caches that name no person. Other words, except those of the tables, are
// values.
var vocabulary = strings.Fields(`all api app article asset basket best bestseller block blog brand by cache cart catalog
category channel checkout city cms config content count country coupon currency customer data de detail dev discount en es facet
feature feed filter filtered first footer fr fragment full group header home html id image index info inventory invoice it item
json key lang language last latest layout link list listing locale main map media menu meta model navigation new newest news nl
offer oldest option order page part path pl popular post price prod product production promotion public query rating recent
recommendation related report review role route rule search section seller seo session set settings shipping shop short similar
site sitemap slug sort staging stat state stock store summary tag tax template text theme thumb token top total translation tree
type url user v value variant version view widget wishlist`)

// tokenize returns the parts of a key.
func tokenize(key string) (all []token) {
	rest := 0
	for _, at := range segments.FindAllStringIndex(key, -1) {
		if at[0] > rest || len(all) >= mostTokens { // bytes that are not text
			return append(all, token{kind: "text"})
		}
		rest = at[1]
		switch text := key[at[0]:at[1]]; {
		case uuidText.MatchString(text):
			all = append(all, token{kind: "uuid"})
		case number.MatchString(text):
			all = append(all, token{kind: "number"})
		case hexText.MatchString(text) && strings.ContainsAny(text, "0123456789"): // not a word such as facade
			all = append(all, token{kind: "hex"})
		case plainWord.MatchString(text):
			all = append(all, token{text, "word"})
		case len(text) == 1 && text[0] < 0x80:
			all = append(all, token{text: text})
		default:
			if m := numbered.FindStringSubmatch(text); m != nil {
				all = append(all, token{m[1], "word"})
				if m[2] != "" {
					all = append(all, token{text: m[2]})
				}
				all = append(all, token{kind: "number"})
				continue
			}
			all = append(all, token{kind: "text"})
		}
	}
	if rest < len(key) {
		all = append(all, token{kind: "text"})
	}
	return all
}

// A grouper finds families.
type grouper struct {
	app      string
	known    map[string]bool // words that are not values
	families []Family
}

// isKnown reports whether a word is made of known words.
func (g *grouper) isKnown(word string) bool {
	return word == g.app || len(word) == 1 || !slices.ContainsFunc(strings.Split(words(word), "_"), func(part string) bool { return !g.known[singular(part)] })
}

// group adds the families of keys that have the same parts up to a position.
func (g *grouper) group(keys [][]token, prefix []token) {
	at, ended := len(prefix), 0
	next := map[token][][]token{}
	for _, key := range keys {
		if len(key) == at {
			ended++
			continue
		}
		t := key[at]
		if t.kind == "word" && !g.isKnown(t.text) {
			t = token{kind: "text"}
		}
		next[t] = append(next[t], key)
	}
	if ended > 0 {
		g.families = append(g.families, Family{Family: familyText(prefix), Keys: ended, tokens: prefix})
	}
	for t, keys := range next {
		g.group(keys, append(slices.Clone(prefix), t))
	}
}

func familyText(tokens []token) string {
	var b strings.Builder
	for _, t := range tokens {
		b.WriteString(cmp.Or(t.text, "<"+t.kind+">"))
	}
	return b.String()
}

// readFamilies finds the families of the keys in use, and an entity for each.
func (d *Draft) readFamilies(o Options) {
	g := &grouper{app: o.App, known: map[string]bool{}}
	know := func(names ...string) {
		for _, name := range names {
			for _, part := range strings.Split(words(name), "_") {
				g.known[singular(part)] = true
			}
		}
	}
	know(vocabulary...)
	know(o.App)
	for _, e := range d.all {
		know(e.Name, e.name)
		for _, c := range e.Columns {
			know(c.Name)
		}
	}
	var keys [][]token
	for _, key := range slices.Compact(slices.Sorted(slices.Values(o.Keys))) {
		switch rest, ofApp := strings.CutPrefix(key, o.App); {
		case key == "" || ownKeys.MatchString(key):
		case ofApp && o.App != "" && rest != "" && strings.Contains(separators, rest[:1]):
			keys = append(keys, append([]token{{o.App, "word"}}, tokenize(rest)...))
		default:
			keys = append(keys, tokenize(key))
		}
	}
	g.group(keys, nil)
	d.Families = g.families
	slices.SortFunc(d.Families, func(a, b Family) int { return strings.Compare(a.Family, b.Family) })
	byName := d.byName()
	for i := range d.Families {
		if e := d.Families[i].explain(byName, o.App); e != nil {
			e.keys = append(e.keys, d.Families[i])
		}
	}
}

// byName returns the entities by the names of their tables and, before these, by their own.
func (d *Draft) byName() map[string]*entity {
	all := map[string]*entity{}
	for _, name := range []func(*entity) string{func(e *entity) string { return words(e.Name) }, func(e *entity) string { return e.name }} {
		for _, e := range slices.Backward(d.all) {
			if e.isDrafted() {
				all[singular(name(e))] = e
			}
		}
	}
	return all
}

// explain returns the entity whose rows a family shows, by the words in it, or nil. A value right
// after the entity's name is the ID.
func (f *Family) explain(byName map[string]*entity, app string) *entity {
	var of *entity
	id := -1
	for i, t := range f.tokens {
		e := byName[singular(words(t.text))]
		if t.kind != "word" || e == nil || i == 0 && t.text == app {
			continue
		}
		value := i + 1
		for value < len(f.tokens) && strings.Contains(separators, cmp.Or(f.tokens[value].text, "no separator")) {
			value++
		}
		switch {
		case value < len(f.tokens) && f.tokens[value].kind != "word":
			if !e.fitsID(f.tokens[value].kind) {
				return nil
			}
			of, id = e, value
		case id < 0:
			of = e
		}
	}
	if of == nil {
		return nil
	}
	kind, text := f.template(id, app)
	if literal, _, _ := strings.Cut(strings.Replace(text, "{app}", app, 1), "*"); kind == "patterns" && len(literal) < leastPrefix {
		return nil
	}
	f.Entity, f.Kind, f.Template = of.name, kind, text
	return of
}

// template returns the template of a family whose ID is at a position, or -1.
func (f *Family) template(id int, app string) (kind, text string) {
	kind = "keys"
	if slices.ContainsFunc(slices.Concat(f.tokens[:max(id, 0)], f.tokens[id+1:]), func(t token) bool { return t.text == "" }) {
		kind = "patterns"
	}
	escapes := strings.NewReplacer("{", "{{", "}", "}}")
	if kind == "patterns" {
		escapes = strings.NewReplacer("{", "{{", "}", "}}", "*", `\*`, "?", `\?`, `\`, `\\`)
	}
	for i, t := range f.tokens {
		switch {
		case i == id:
			text += "{id}"
		case i == 0 && t.text == app:
			text += "{app}"
		case t.text == "":
			text += "*"
		default:
			text += escapes.Replace(t.text)
		}
	}
	return kind, text
}

// fitsID reports whether values of a kind can be the entity's IDs.
func (e *entity) fitsID(kind string) bool {
	if len(e.Key) != 1 {
		return false
	}
	switch isNumber := slices.Contains(numberTypes, e.Key[0].Type); {
	case isNumber:
		return kind == "number"
	case e.isHex():
		return kind == "hex"
	}
	return true
}
