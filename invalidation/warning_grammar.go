package invalidation

import (
	"fmt"
	"slices"
	"strings"
)

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
		name := len(segments) == 1 && segments[0].name != ""
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
		case name && vars[segments[0].name] == nil:
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
			is = parts[n].text()
		}
		a.add(t.at, t.text, fmt.Sprintf("part %d of the name is %s, where the grammar of names has %s", n+1, is, wanted), "order the parts as in "+g.text)
	}
	for n, fixed := range g.fixed {
		if n >= len(parts) || parts[n].text() != fixed {
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
type namePart []segment

// splitParts splits a name at its colons.
func splitParts(segments []segment) (parts []namePart) {
	parts = []namePart{nil}
	for _, s := range segments {
		for i, piece := range strings.Split(strings.NewReplacer("{", "", "}", "").Replace(s.text), ":") {
			if i > 0 {
				parts = append(parts, nil)
			}
			if last := len(parts) - 1; piece != "" || s.name != "" {
				parts[last] = append(parts[last], segment{piece, s.name})
			}
		}
	}
	return parts
}

func (p namePart) text() string {
	var b strings.Builder
	for _, s := range p {
		if b.WriteString(s.text); s.name != "" {
			b.WriteString("{" + s.name + "}")
		}
	}
	return b.String()
}

// hasValue reports whether a row or a wildcard decides what the part is.
func (p namePart) hasValue(c *compiler) bool {
	return slices.ContainsFunc(p, func(s segment) bool {
		return strings.ContainsAny(s.text, "*?") || s.name != "" && c.vars[s.name] == nil && c.each[s.name] == nil
	})
}

// isEach reports whether the part has an enumeration.
func (p namePart) isEach(c *compiler) bool {
	return slices.ContainsFunc(p, func(s segment) bool { return c.each[s.name] != nil })
}
