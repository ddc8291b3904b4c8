package invalidation

import (
	"slices"
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
			c.addFault(name.at, name.text, "the values of a param cannot go along with its own", "name another param, or remove with")
		case c.leads[name.text] == lead:
			c.addFault(name.at, name.text, "given twice in with", "remove one of the two")
		case c.leads[name.text] != "":
			c.addFault(name.at, name.text, "its values go along with those of "+c.leads[name.text]+" already", "write all names that go together under one of them")
		case other != nil:
			c.addFault(name.at, name.text, "the param has an entry of its own, in line "+strconv.Itoa(other.at.line)+", and its values go along with those of "+lead,
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
		p.lookup = c.lookups.readLookup(part, p.with)
	}
	switch asksItself := p.lookup != nil && p.lookup.asksItself(); {
	case p.lookup != nil && p.optional && !asksItself:
		c.addFault(part.optional.at, part.name.text, "a param with a lookup is never absent: one that finds nothing is an empty list", "remove optional or the lookup")
	case p.lookup != nil && part.has["default"] && !asksItself:
		c.addFault(part.name.at, part.name.text, "a param with a lookup needs no default: what the row does not give is looked up", "remove default or the lookup")
	case part.has["default"] && p.optional:
		c.addFault(part.name.at, part.name.text, "a param with a default is never absent", "remove optional or default")
	case part.has["default"] && len(part.with) > 0:
		c.addFault(part.name.at, part.name.text, "params whose values go together have no default", "remove default, or with")
	}
}

// fallback reads the default values of a param. The name of a var in braces means the values of the
// var.
func (c *paramReader) fallback(part paramPart) []string {
	if !part.has["default"] {
		return nil
	}
	all := []string{}
	seen := map[string]bool{}
	for _, s := range part.fallback {
		if !c.plainText(s) {
			continue
		}
		if seen[s.text] {
			c.addFault(s.at, s.text, "the same value twice in default", "remove one of the two")
		}
		seen[s.text] = true
		if segments, errs := parseTemplate(s.text); len(errs) == 0 && len(segments) == 1 && segments[0].Name != "" {
			all = append(all, c.valuesOf(s, segments[0].Name)...)
		} else {
			all = append(all, s.text)
		}
	}
	return all
}

// A slotTable gives the names that an entity's templates use their slots.
type slotTable struct {
	*globals
	of      *entityCompiler
	circles map[*Lookup]bool
	known   map[string]int
	firsts  map[string]string // of names whose lead the entity does not declare: see leadOf
	asking  []string          // the params whose lookups are being compiled, each asked by the next
}

// newSlot gives a name its slot.
func (t *slotTable) newSlot(name string, s slot) int {
	n := len(t.of.entity.slots)
	s.name, s.lead = name, n
	t.known[name] = n
	t.of.entity.slots = append(t.of.entity.slots, s)
	return n
}

// paramSlot returns the slot of a param that something uses.
func (t *slotTable) paramSlot(name string, p *declaredName) int {
	p.used = true
	if n, known := t.known[name]; known {
		return n
	}
	lead := t.leadOf(name)
	if lead == name {
		return t.leadSlot(name, p)
	}
	first := t.of.params[lead]
	if first == nil {
		t.report.addFault(p.at, name, "its values go along with those of "+lead+", which the entity "+t.of.entity.name+" does not declare", "add "+lead+" to the params of "+t.of.entity.name)
		return t.newSlot(name, slot{})
	}
	leader := t.paramSlot(lead, first)
	n := t.newSlot(name, slot{optional: t.of.entity.slots[leader].optional})
	t.of.entity.slots[n].lead, t.of.entity.slots[n].together, t.of.entity.slots[leader].together = leader, true, true
	t.of.entity.slots[n].column = t.columns[name]
	t.of.entity.slots[leader].with = append(t.of.entity.slots[leader].with, n)
	return n
}

// leadOf returns the first name of the group of names whose values go together in this entity: the
// name itself if the entity declares it first, unless a lookup finds the values, which only the
// name with the lookup can ask.
func (t *slotTable) leadOf(name string) string {
	lead := t.leads[name]
	if lead == "" || t.params[lead] == nil {
		return name
	}
	if t.params[lead].lookup != nil || t.of.params[lead] != nil {
		return lead
	}
	if t.firsts[lead] == "" {
		for _, other := range t.params[lead].with {
			if t.of.params[other] != nil {
				t.firsts[lead] = other
				break
			}
		}
	}
	return t.firsts[lead]
}

// leadSlot makes the slot of a param whose values go along with no other's.
func (t *slotTable) leadSlot(name string, p *declaredName) int {
	of := t.about(name)
	if of == nil {
		lead := t.params[t.leads[name]] // which the entity does not declare
		return t.newSlot(name, slot{optional: lead != nil && lead.optional})
	}
	n := t.newSlot(name, slot{optional: of.optional, lookup: of.lookup, fallback: of.fallback})
	if of.lookup == nil {
		return n
	}
	if len(t.asking) > maxRank {
		t.addOnce(of, "more than "+strconv.Itoa(maxRank)+" lookups follow each other from this one on", "join the tables in one SELECT")
		return n
	}
	t.asking = append(t.asking, name)
	var by choice
	for _, other := range of.lookup.By {
		switch declared := t.of.params[other]; {
		case other == idName:
			by.slots = append(by.slots, idSlot)
		case other == name:
			by.slots = append(by.slots, n)
		case !isName(other) || t.vars[other] != nil || declared == nil && t.each[other] != nil:
			// Reported where the lookup is.
		case declared == nil && t.of.each[other] != nil:
			t.of.each[other].used = true
			t.report.addFault(p.at, name, "its lookup is asked by "+strconv.Quote(other)+", which is an enumeration of the entity "+t.of.entity.name, "rename one of the two, or ask by id or a param")
		case declared == nil:
			t.report.addFault(p.at, name, "its lookup is asked by "+strconv.Quote(other)+", which the entity "+t.of.entity.name+" does not declare",
				"add "+other+" to the params of "+t.of.entity.name)
		default:
			if from := slices.Index(t.asking, t.leadOf(other)); from >= 0 {
				// which was reported
				if declared.used = true; !slices.Contains(of.lookup.With, other) {
					t.addCircle(of, t.asking[from:])
				}
				continue
			}
			by.slots = append(by.slots, t.paramSlot(other, declared))
		}
	}
	t.asking = t.asking[:len(t.asking)-1]
	by.join(t.of.entity.slots)
	t.of.entity.slots[n].by = by
	return n
}

// addOnce reports a lookup, once for all entities.
func (t *slotTable) addOnce(of *sharedParam, problem, cure string) {
	if !t.circles[of.lookup] {
		t.circles[of.lookup] = true
		t.report.addFault(of.at, of.part.name.text, problem, cure)
	}
}

// addCircle reports lookups that ask each other, once for all entities.
func (t *slotTable) addCircle(of *sharedParam, names []string) {
	reported := t.circles[of.lookup]
	for _, name := range names {
		if l := t.about(name).lookup; t.circles[l] {
			reported = true
		} else {
			t.circles[l] = true
		}
	}
	if !reported {
		t.report.addFault(of.at, of.part.name.text, "lookups that ask each other in a circle: "+writeCycle(names, names[0]), "let one of them be asked by id, or by a param that the row gives")
	}
}

// about returns the declaration of a param in the map, for this entity, or nil.
func (t *slotTable) about(name string) *sharedParam {
	if own := t.of.own[name]; own != nil {
		return own
	}
	return t.params[name]
}
