package invalidation

import (
	"strconv"
)

// A sharedParam is an entry of the shared params: the declaration of one name, or of several whose
// values go together.
type sharedParam struct {
	at       place
	optional bool
	fallback []string // the values of default; nil: none
	lookup   *Lookup
	with     []string // the names whose values go along with those of this one
	part     paramPart
	used     bool
}

// A paramReader reads the section params.
type paramReader struct {
	*globals
	lookups *lookupReader
}

func (c *paramReader) readParams() {
	c.params, c.leads, c.columns = map[string]*sharedParam{}, map[string]string{}, map[string]int{}
	for _, part := range c.doc.params {
		if !c.newName(part.name, "a param") {
			continue
		}
		c.params[part.name.text] = &sharedParam{at: part.name.at, part: part, optional: c.isTrue(part.optional, "optional")}
	}
	for _, part := range c.doc.params { // all names are known
		if p := c.params[part.name.text]; p != nil {
			c.readWith(p)
		}
	}
	for _, part := range c.doc.params {
		if p := c.params[part.name.text]; p != nil {
			c.readParam(p)
		}
	}
}

// readWith reads the names whose values go along with those of another one.
func (c *paramReader) readWith(p *sharedParam) {
	lead := p.part.name.text
	for _, name := range p.part.with {
		other := c.params[name.text]
		switch {
		case !c.newName(name, "a param"):
		case name.text == lead:
			c.add(name.at, name.text, "the values of a param cannot go along with its own", "name another param, or remove with")
		case c.leads[name.text] == lead:
			c.add(name.at, name.text, "given twice in with", "remove one of the two")
		case c.leads[name.text] != "":
			c.add(name.at, name.text, "its values go along with those of "+c.leads[name.text]+" already", "write all names that go together under one of them")
		case other != nil:
			c.add(name.at, name.text, "the param has an entry of its own, in line "+strconv.Itoa(other.at.line)+", and its values go along with those of "+lead,
				"what is to be known about both stands under "+lead+": remove the entry")
			c.leads[name.text] = lead
		default:
			c.leads[name.text] = lead
			p.with = append(p.with, name.text)
			c.columns[name.text] = len(p.with)
		}
	}
}

// readParam reads the fields of the entry of a param.
func (c *paramReader) readParam(p *sharedParam) {
	part := p.part
	p.fallback = c.fallback(part)
	if part.lookup != nil {
		p.lookup = c.lookups.read(part, p.with)
	}
	switch asksItself := p.lookup != nil && p.lookup.asksItself(); {
	case p.lookup != nil && p.optional && !asksItself:
		c.add(part.optional.at, part.name.text, "a param with a lookup is never absent: one that finds nothing is an empty list", "remove optional or the lookup")
	case p.lookup != nil && part.hasDefault && !asksItself:
		c.add(part.name.at, part.name.text, "a param with a lookup needs no default: what the row does not give is looked up", "remove default or the lookup")
	case part.hasDefault && p.optional:
		c.add(part.name.at, part.name.text, "a param with a default is never absent", "remove optional or default")
	case part.hasDefault && len(part.with) > 0:
		c.add(part.name.at, part.name.text, "params whose values go together have no default", "remove default, or with")
	}
}

// fallback reads the default values of a param. The name of a var in braces means the values of the
// var.
func (c *paramReader) fallback(part paramPart) []string {
	if !part.hasDefault {
		return nil
	}
	all := []string{}
	seen := map[string]bool{}
	for _, s := range part.fallback {
		if !c.plainText(s) {
			continue
		}
		if seen[s.text] {
			c.add(s.at, s.text, "the same value twice in default", "remove one of the two")
		}
		seen[s.text] = true
		if segments, errs := parseTemplate(s.text); len(errs) == 0 && len(segments) == 1 && segments[0].name != "" {
			all = append(all, c.valuesOf(s, segments[0].name)...)
		} else {
			all = append(all, s.text)
		}
	}
	return all
}
