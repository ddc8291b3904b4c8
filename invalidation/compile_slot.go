package invalidation

import (
	"slices"
	"strconv"
)

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
		t.report.add(p.at, name, "its values go along with those of "+lead+", which the entity "+t.of.entity.name+" does not declare", "add "+lead+" to the params of "+t.of.entity.name)
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
			t.report.add(p.at, name, "its lookup is asked by "+strconv.Quote(other)+", which is an enumeration of the entity "+t.of.entity.name, "rename one of the two, or ask by id or a param")
		case declared == nil:
			t.report.add(p.at, name, "its lookup is asked by "+strconv.Quote(other)+", which the entity "+t.of.entity.name+" does not declare",
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
		t.report.add(of.at, of.part.name.text, problem, cure)
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
		t.report.add(of.at, of.part.name.text, "lookups that ask each other in a circle: "+writeCycle(names, names[0]), "let one of them be asked by id, or by a param that the row gives")
	}
}

// about returns the declaration of a param in the map, for this entity, or nil.
func (t *slotTable) about(name string) *sharedParam {
	if own := t.of.own[name]; own != nil {
		return own
	}
	return t.params[name]
}
