package invalidation

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/unstale/unstale/internal/near"
)

// A sharedParam is an entry of the shared params: what is to be known about one name, or about several whose values go together.
type sharedParam struct {
	at       place
	optional bool
	fallback []string // the values of default; nil: none
	lookup   *Lookup
	with     []string // the names whose values go along with those of this one
	part     paramPart
	used     bool
}

func (c *compiler) readParams() {
	c.shared, c.leads, c.columns = map[string]*sharedParam{}, map[string]string{}, map[string]int{}
	for _, part := range c.doc.params {
		if !c.newName(part.name, "a param") {
			continue
		}
		c.shared[part.name.text] = &sharedParam{at: part.name.at, part: part, optional: c.isTrue(part.optional, "optional")}
	}
	for _, part := range c.doc.params { // all names are known
		if p := c.shared[part.name.text]; p != nil {
			c.readWith(p)
		}
	}
	for _, part := range c.doc.params {
		if p := c.shared[part.name.text]; p != nil {
			c.readParam(p)
		}
	}
}

// readWith reads the names whose values go along with those of another one.
func (c *compiler) readWith(p *sharedParam) {
	lead := p.part.name.text
	for _, name := range p.part.with {
		other := c.shared[name.text]
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

// readParam reads what stands in the entry of a param.
func (c *compiler) readParam(p *sharedParam) {
	part := p.part
	p.fallback = c.fallback(part)
	if part.lookup != nil {
		p.lookup = c.lookup(part, p.with)
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

func (c *compiler) isTrue(s scalar, name string) bool {
	if s.given && s.text != "true" && s.text != "false" {
		c.add(s.at, s.text, name+" must be true or false", "write "+name+": true, or remove it")
	}
	return s.text == "true"
}

// fallback reads the values that stand for what a row does not give. One that is the name of a var, in braces, are those of the var.
func (c *compiler) fallback(part paramPart) []string {
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

// valuesOf returns the values of a var that a default names.
func (c *compiler) valuesOf(s scalar, name string) []string {
	v := c.vars[name]
	if v == nil {
		like := c.nearest(name, slices.Sorted(maps.Keys(c.vars)))
		if v := c.vars[like]; v != nil {
			v.used = true
		}
		c.add(s.at, s.text, "a default can be that of a var, and there is no var "+name, near.Ask(like, "declare it under vars"))
		return nil
	}
	if v.used = true; v.list != nil {
		return v.list
	}
	return []string{v.value}
}

// lookup reads the lookup of a param, which finds values for others too.
func (c *compiler) lookup(part paramPart, with []string) *Lookup {
	l := &Lookup{Line: part.name.at.line, Column: part.name.at.column, Param: part.name.text, With: with, SQL: part.lookup.sql.text, Always: c.isTrue(part.lookup.always, "always")}
	if !part.lookup.hasBy {
		c.add(part.lookup.at, "", "the lookup of "+part.name.text+" has no by", "name what it is asked by: by: [id]")
	}
	for _, by := range part.lookup.by {
		if slices.Contains(l.By, by.text) {
			c.add(by.at, by.text, "given twice in by", "remove one of the two")
			continue
		}
		l.By = append(l.By, by.text)
		c.checkBy(l, by)
	}
	switch sql := part.lookup.sql; {
	case !part.lookup.hasSQL:
		c.add(part.lookup.at, "", "the lookup of "+part.name.text+" has no sql", cureSQL)
	case sql.given && c.plainText(sql):
		c.checkSQL(l, sql, part.unclearWith)
	}
	c.lookups = append(c.lookups, writtenLookup{part.name, l})
	return l
}

// checkSQL checks the statement of a lookup.
func (c *compiler) checkSQL(l *Lookup, sql scalar, unclearWith bool) {
	by := len(l.By)
	if unclearWith {
		by = 0 // the number of columns is unknown
	}
	faults, batch := sqlFaults(sql.text, by, l.Values())
	for _, fault := range faults {
		c.add(sql.at, fault.text, fault.problem, fault.cure)
	}
	for _, fault := range batch {
		l.Single = true
		c.later.add(sql.at, fault.text, fault.problem, fault.cure)
	}
	for _, name := range namesInSQL(sql.text) {
		c.later.add(sql.at, "{"+name+"}", "the SQL of a lookup is not a template: the server gets {"+name+"} as it is written", c.cureName(l, name))
	}
}

// cureName returns how the statement of a lookup gets the value of a name.
func (c *compiler) cureName(l *Lookup, name string) string {
	switch {
	case slices.Contains(l.By, name):
		return "write IN (?): the server gets the values of by in place of the ?"
	case c.vars[name] != nil, c.each[name] != nil:
		return "write the value itself"
	}
	by := strings.Join(append(slices.Clone(l.By), name), ", ")
	return "ask by it too: by: [" + by + "], SELECT " + by + ", ... WHERE (" + by + ") IN (?)"
}

// checkBy checks what a lookup is asked by: the id, or a param, which may be looked up itself.
func (c *compiler) checkBy(l *Lookup, by scalar) {
	other := c.shared[by.text]
	switch {
	case by.text == idName:
	case c.vars[by.text] != nil || c.each[by.text] != nil:
		what := "an enumeration"
		if v := c.vars[by.text]; v != nil {
			v.used, what = true, "a var"
		} else {
			c.each[by.text].used = true
		}
		c.add(by.at, by.text, "a lookup cannot be asked by "+what, "name id, or a param")
	case by.text == l.Param && !l.Always:
		c.add(by.at, by.text, "a lookup that is asked by what the row gives for its own param adds to that", "write always: true beside by, or ask by something else")
	case by.text == l.Param:
	case slices.Contains(l.With, by.text):
		c.add(by.at, by.text, "a lookup cannot be asked by what it finds", "name id, or another param")
	case other != nil && other.optional, c.leads[by.text] != "" && c.shared[c.leads[by.text]].optional:
		c.add(by.at, by.text, "a lookup cannot be asked by an optional param", "remove optional there, or ask by something else")
	case !isName(by.text):
		c.add(by.at, by.text, "not a name", "name id, or a param")
	}
}
