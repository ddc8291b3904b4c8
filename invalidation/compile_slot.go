package invalidation

import (
	"slices"
	"strconv"
)

// slot gives a name its slot.
func (e *entityCompiler) slot(name string, s slot) int {
	n := len(e.entity.slots)
	s.name, s.lead = name, n
	e.slots[name] = n
	e.entity.slots = append(e.entity.slots, s)
	return n
}

// paramSlot returns the slot of a param that something uses.
func (e *entityCompiler) paramSlot(name string, p *declaredName) int {
	p.used = true
	if n, known := e.slots[name]; known {
		return n
	}
	lead := e.leadOf(name)
	if lead == name {
		return e.leadSlot(name, p)
	}
	first := e.params[lead]
	if first == nil {
		e.add(p.at, name, "its values go along with those of "+lead+", which the entity "+e.entity.name+" does not declare", "add "+lead+" to the params of "+e.entity.name)
		return e.slot(name, slot{})
	}
	leader := e.paramSlot(lead, first)
	n := e.slot(name, slot{optional: e.entity.slots[leader].optional})
	e.entity.slots[n].lead, e.entity.slots[n].together, e.entity.slots[leader].together = leader, true, true
	e.entity.slots[n].column = e.columns[name]
	e.entity.slots[leader].with = append(e.entity.slots[leader].with, n)
	return n
}

// leadOf returns the name with whose values those of a name go along in this entity: itself where it is the first of them that the entity
// declares, unless a lookup finds them, which only the one that has it can ask.
func (e *entityCompiler) leadOf(name string) string {
	lead := e.leads[name]
	if lead == "" || e.shared[lead] == nil {
		return name
	}
	if e.shared[lead].lookup != nil || e.params[lead] != nil {
		return lead
	}
	if e.firsts[lead] == "" {
		for _, other := range e.shared[lead].with {
			if e.params[other] != nil {
				e.firsts[lead] = other
				break
			}
		}
	}
	return e.firsts[lead]
}

// leadSlot makes the slot of a param whose values go along with no other's.
func (e *entityCompiler) leadSlot(name string, p *declaredName) int {
	of := e.about(name)
	if of == nil {
		lead := e.shared[e.leads[name]] // which the entity does not declare
		return e.slot(name, slot{optional: lead != nil && lead.optional})
	}
	n := e.slot(name, slot{optional: of.optional, lookup: of.lookup, fallback: of.fallback})
	if of.lookup == nil {
		return n
	}
	if len(e.asking) > maxRank {
		e.addOnce(of, "more than "+strconv.Itoa(maxRank)+" lookups follow each other from this one on", "join the tables in one SELECT")
		return n
	}
	e.asking = append(e.asking, name)
	var by choice
	for _, other := range of.lookup.By {
		switch declared := e.params[other]; {
		case other == idName:
			by.slots = append(by.slots, idSlot)
		case other == name:
			by.slots = append(by.slots, n)
		case !isName(other) || e.vars[other] != nil || declared == nil && e.compiler.each[other] != nil:
			// Reported where the lookup is.
		case declared == nil && e.each[other] != nil:
			e.each[other].used = true
			e.add(p.at, name, "its lookup is asked by "+strconv.Quote(other)+", which is an enumeration of the entity "+e.entity.name, "rename one of the two, or ask by id or a param")
		case declared == nil:
			e.add(p.at, name, "its lookup is asked by "+strconv.Quote(other)+", which the entity "+e.entity.name+" does not declare",
				"add "+other+" to the params of "+e.entity.name)
		default:
			if from := slices.Index(e.asking, e.leadOf(other)); from >= 0 {
				if declared.used = true; !slices.Contains(of.lookup.With, other) { // which was reported
					e.addCircle(of, e.asking[from:])
				}
				continue
			}
			by.slots = append(by.slots, e.paramSlot(other, declared))
		}
	}
	e.asking = e.asking[:len(e.asking)-1]
	by.join(e.entity.slots)
	e.entity.slots[n].by = by
	return n
}

// addOnce reports a lookup, once for all entities.
func (e *entityCompiler) addOnce(of *sharedParam, problem, cure string) {
	if !e.circles[of.lookup] {
		e.circles[of.lookup] = true
		e.add(of.at, of.part.name.text, problem, cure)
	}
}

// addCircle reports lookups that ask each other, once for all entities.
func (e *entityCompiler) addCircle(of *sharedParam, names []string) {
	reported := e.circles[of.lookup]
	for _, name := range names {
		if l := e.about(name).lookup; e.circles[l] {
			reported = true
		} else {
			e.circles[l] = true
		}
	}
	if !reported {
		e.add(of.at, of.part.name.text, "lookups that ask each other in a circle: "+writeCycle(names, names[0]), "let one of them be asked by id, or by a param that the row gives")
	}
}

// about returns what the map says of a param, for this entity; nil: nothing.
func (e *entityCompiler) about(name string) *sharedParam {
	if own := e.own[name]; own != nil {
		return own
	}
	return e.shared[name]
}

// readLookups reads the lookups that the entity has instead of shared ones.
func (e *entityCompiler) readLookups() {
	e.own = map[string]*sharedParam{}
	for _, part := range e.part.lookups {
		name := part.name
		switch lead := e.leads[name.text]; {
		case !e.newName(name, "a param"):
		case e.params[name.text] == nil:
			e.add(name.at, name.text, "a lookup of a param that the entity "+e.entity.name+" does not name", "add "+name.text+" to its params, or remove the lookup")
			if shared := e.shared[name.text]; shared != nil {
				shared.used = true
			}
		case lead != "":
			e.add(name.at, name.text, "its values go along with those of "+lead, "write the lookup under "+lead+": it finds both")
		case part.lookup != nil:
			own := &sharedParam{at: name.at, part: part}
			if shared := e.shared[name.text]; shared != nil {
				own.with = shared.with
				own.lookup = e.lookup(part, own.with)
				if own.lookup.asksItself() {
					own.optional, own.fallback = shared.optional, shared.fallback
				}
			} else {
				own.lookup = e.lookup(part, nil)
			}
			e.own[name.text] = own
		}
	}
}
