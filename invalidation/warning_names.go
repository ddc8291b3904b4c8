package invalidation

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// advisedBytes is how long the literal text of a name should be at most.
const advisedBytes = 64

// A namedText is a template, or the value of a var, whose literal text the rules for names are
// about.
type namedText struct {
	scalar
	list, of string // of is the entity, if it is not a var or a read
	segments []Segment
}

// warnNames writes advice about the names in Redis, unless the map refuses that.
func (a *adviser) warnNames() {
	if a.all.doc.nameAdvice.text == "off" {
		return
	}
	first := map[string]string{}
	var all []namedText
	for _, e := range a.all.order {
		name := e.part.name
		if other := first[strings.ToLower(name.text)]; other != "" {
			a.addFault(name.at, name.text, "the entity differs from "+other+" only in upper and lower case", "rename one of the two")
		}
		first[strings.ToLower(name.text)] = name.text
		for _, w := range e.written {
			segments := w.segments
			if w.list == "tags" {
				segments = segments[1:] // the prefix of tag versions
			}
			all = append(all, namedText{w.scalar, w.list, name.text, segments})
			a.warnAdjacent(w)
		}
	}
	for _, r := range a.all.reads {
		for n, texts := range [][]readText{{r.key}, r.tags, r.sets} {
			for _, t := range texts {
				segments, _ := parseTemplate(t.text)
				all = append(all, namedText{t.scalar, [...]string{"keys", "tags", "sets"}[n], "", segments})
			}
		}
	}
	a.warnForeign(all)
	for _, v := range a.all.doc.vars {
		resolved := a.all.vars[v.name.text]
		for _, value := range slices.Concat(resolved.list, []string{resolved.value}) {
			all = append(all, namedText{v.name, "vars", "", []Segment{{Text: value}}})
		}
	}
	g, _ := parseNameGrammar(a.all.doc.nameAdvice.text, a.all.vars)
	for _, t := range all {
		a.warnLiteral(t)
		if strings.Contains(g.text, "{") && (t.list == "keys" || t.list == "patterns") {
			a.warnOrder(&g, t)
		}
	}
}

// warnLiteral advises about literal text.
func (a *adviser) warnLiteral(t namedText) {
	allowed := separators + "{}"
	if t.list == "patterns" {
		allowed += `*?\`
	}
	var text strings.Builder
	size, last := 0, ""
	for _, s := range t.segments {
		text.WriteString(s.Text)
		size, last = size+len(s.Text), s.Text
		if v := a.all.vars[s.Name]; v != nil {
			longest := len(v.value)
			for _, value := range v.list {
				longest = max(longest, len(value))
			}
			size += longest
		}
	}
	literal := text.String()
	other := strings.IndexFunc(literal, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune(allowed, r)
	})
	if strings.ContainsFunc(literal, func(r rune) bool { return r >= 'A' && r <= 'Z' }) {
		a.addFault(t.at, t.text, "a name with upper case: a reader that writes it in lower case uses another key", "write it in lower case")
	}
	switch {
	case strings.HasSuffix(last, " "):
		a.addFault(t.at, t.text, "a name that ends with a space", "remove the space")
	case other >= 0:
		a.addFault(t.at, t.text, "a name with the character "+strconv.Quote(string([]rune(literal[other:])[0])), "use a to z, 0 to 9 and any of "+separators)
	}
	if size > advisedBytes {
		a.addFault(t.at, t.text, strconv.Itoa(size)+" bytes of literal text, which each key repeats", "use at most "+strconv.Itoa(advisedBytes))
	}
}

// warnAdjacent advises against names without anything between them.
func (a *adviser) warnAdjacent(w writtenTemplate) {
	parts := w.template.parts
	for i := 1; i < len(parts); i++ {
		if parts[i-1].slot != noSlot && parts[i].slot != noSlot {
			a.addFault(w.at, w.text, "two names without a separator: 1 and 23 make the same text as 12 and 3", "write a separator between them, such as {a}:{b}")
			return
		}
	}
}

// warnForeign advises about the few keys and patterns without the prefix that the others share.
func (a *adviser) warnForeign(all []namedText) {
	uses, total, most := map[string]*prefixUse{}, 0, ""
	prefixes := make([]string, len(all))
	for i, t := range all {
		if t.list != "keys" && t.list != "patterns" {
			continue
		}
		prefix := a.all.usePrefix(uses, t.of, t.segments)
		total++
		if prefixes[i] = prefix; prefix != "" && (uses[most] == nil || uses[prefix].count > uses[most].count) {
			most = prefix
		}
	}
	if u := uses[most]; most == "" || u.count*3 < total*2 || !u.isShared() {
		return
	}
	for i, t := range all {
		if (t.list == "keys" || t.list == "patterns") && !strings.HasPrefix(prefixes[i], most) {
			a.addFault(t.at, t.text, "does not begin with "+most+", as "+strconv.Itoa(uses[most].count)+" of "+strconv.Itoa(total)+" keys and patterns of the map do", "begin it with "+most)
		}
	}
}

// A nameGrammar is the order of a name's parts that a map declares in name_advice, such as
// "{app}:{env}:{entity}:{id}:{sub}".
type nameGrammar struct {
	text         string
	fixed, kinds []string // parts before {id}: literal text and vars, and then what stands for a text
	id, sub      bool
}

const exampleNameGrammar = `name_advice: "{app}:{env}:{entity}:{id}:{sub}"`

const (
	partID  = "{id}"
	partSub = "{sub}"
)

// parseNameGrammar reads a grammar, or returns the problem. vars are the names of the map's vars.
func parseNameGrammar(text string, vars map[string]*variable) (g nameGrammar, problem string) {
	g.text = text
	for part := range strings.SplitSeq(text, ":") {
		segments, errs := parseTemplate(part)
		name := len(segments) == 1 && segments[0].Name != ""
		switch {
		case len(errs) > 0 || part == "" || len(segments) > 1:
			return g, fmt.Sprintf("the part %q is neither text nor one name", part)
		case g.sub || g.id && part != partSub:
			behind := partID
			if g.sub {
				behind = partSub
			}
			return g, fmt.Sprintf("%q stands behind %s", part, behind)
		case part == partID:
			g.id = true
		case part == partSub:
			g.sub = true
		case name && vars[segments[0].Name] == nil:
			g.kinds = append(g.kinds, part)
		case len(g.kinds) > 0:
			return g, fmt.Sprintf("%q stands behind %s, which is neither a var nor text", part, g.kinds[0])
		default:
			g.fixed = append(g.fixed, part)
		}
	}
	return g, ""
}

// warnOrder advises about the first part of a key or a pattern that is not in the order of the
// grammar. Enumerations count as text and as values; braces of hash tags count as nothing.
func (a *adviser) warnOrder(g *nameGrammar, t namedText) {
	parts := splitParts(t.segments)
	wrong := func(n int, wanted string) {
		is := "nothing"
		if n < len(parts) {
			is = parts[n].pattern()
		}
		a.addFault(t.at, t.text, fmt.Sprintf("part %d of the name is %s, where the grammar of names has %s", n+1, is, wanted), "order the parts as in "+g.text)
	}
	for n, fixed := range g.fixed {
		if n >= len(parts) || parts[n].pattern() != fixed {
			wrong(n, fixed)
			return
		}
	}
	n := len(g.fixed)
	for _, kind := range g.kinds {
		if n == len(parts) || parts[n].hasValue(a.all) {
			if n == len(g.fixed) { // a name has one of them at least
				wrong(n, kind)
				return
			}
			break
		}
		n++
	}
	switch {
	case n == len(parts):
	case g.id && !parts[n].hasValue(a.all) && !parts[n].isEach(a.all):
		wrong(n, partID)
	case !g.id && !g.sub:
		wrong(n, "its end")
	case g.id && !g.sub && n+1 < len(parts):
		wrong(n+1, "its end")
	}
}

// A namePart is what stands between two colons of a name.
type namePart []Segment

// splitParts splits a name at its colons.
func splitParts(segments []Segment) (parts []namePart) {
	parts = []namePart{nil}
	for _, s := range segments {
		for i, piece := range strings.Split(strings.NewReplacer("{", "", "}", "").Replace(s.Text), ":") {
			if i > 0 {
				parts = append(parts, nil)
			}
			if last := len(parts) - 1; piece != "" || s.Name != "" {
				parts[last] = append(parts[last], Segment{piece, s.Name})
			}
		}
	}
	return parts
}

func (p namePart) pattern() string {
	var b strings.Builder
	for _, s := range p {
		if b.WriteString(s.Text); s.Name != "" {
			b.WriteString("{" + s.Name + "}")
		}
	}
	return b.String()
}

// hasValue reports whether a row or a wildcard decides what the part is.
func (p namePart) hasValue(c *compiler) bool {
	return slices.ContainsFunc(p, func(s Segment) bool {
		return strings.ContainsAny(s.Text, "*?") || s.Name != "" && c.vars[s.Name] == nil && c.each[s.Name] == nil
	})
}

// isEach reports whether the part has an enumeration.
func (p namePart) isEach(c *compiler) bool {
	return slices.ContainsFunc(p, func(s Segment) bool { return c.each[s.Name] != nil })
}
