package invalidation

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// An entityCompiler turns an entityPart into an entity.
type entityCompiler struct {
	*globals
	all    *compiler
	part   entityPart
	entity *entity
	params map[string]*declaredName
	own    map[string]*sharedParam // params with a lookup of this entity's
	each   map[string]*declaredName
	slots  slotTable
	links  []link
	// written are the templates as they were compiled, with their places.
	written []writtenTemplate
	// unclear is set where a template could not be read: its names may be used.
	unclear bool
	visited visitState
	depth   int    // in the path that visits it
	reach   *reach // see reachable
}

// A declaredName is a param or an enumeration of an entity.
type declaredName struct {
	at     place
	values []string // of an enumeration
	used   bool
}

// A link is an entry of as whose target is still a name.
type link struct {
	target scalar
	id     template
}

// A writtenTemplate is a compiled template of one of the lists keys, patterns, sets and tags.
type writtenTemplate struct {
	scalar
	list     string
	template template
	segments []Segment
}

func (c *compiler) readEntities() {
	c.entities = map[string]*entityCompiler{}
	if c.doc.has.lacks("entities") {
		c.addFault(c.doc.at, "", "entities is missing", "write entities: and below it what can change, such as "+exampleEntities)
	}
	for _, part := range c.doc.entities {
		switch {
		case IsReserved(part.name.text):
			c.addFault(part.name.at, part.name.text, "the entity is part of every map", "give yours another name")
		case !isEntityName(part.name.text):
			c.addFault(part.name.at, part.name.text, "an entity cannot have this name",
				"a name has letters, digits and any of _ - . :, and at most "+strconv.Itoa(maxEntityName)+" bytes")
		}
		e := &entityCompiler{globals: c.globals, all: c, part: part, entity: &entity{name: part.name.text, comment: part.comment}}
		e.slots = slotTable{globals: c.globals, of: e, circles: c.lookups.circles, known: map[string]int{}, firsts: map[string]string{}}
		e.slots.newSlot(idName, slot{})
		e.readNames()
		c.entities[part.name.text] = e
		c.order = append(c.order, e)
	}
	c.entityNames = slices.Sorted(maps.Keys(c.entities))
	for _, e := range c.order {
		(&templateReader{c.scalars, e}).readTemplates()
		e.readDelays()
	}
	for _, e := range c.order {
		e.linkAliases()
	}
	for _, e := range c.order {
		e.findCycle(nil)
	}
	if len(c.lookups.circles) == 0 {
		c.rankLookups()
	}
	for _, e := range c.order {
		e.finish()
	}
}

// readNames reads the params and the enumerations.
func (e *entityCompiler) readNames() {
	e.params, e.each = map[string]*declaredName{}, map[string]*declaredName{}
	for _, name := range e.part.params {
		if !e.newName(name, "a param") {
			continue
		}
		if e.params[name.text] != nil {
			e.addFault(name.at, name.text, "given twice in params", "remove one of the two")
			continue
		}
		if each := e.globals.each[name.text]; each != nil {
			each.used = true
			e.addFault(name.at, name.text, "a param has the name of an enumeration of all entities, in line "+strconv.Itoa(each.at.line), "rename one of the two")
			continue
		}
		e.params[name.text] = &declaredName{at: name.at}
		if shared := e.globals.params[name.text]; shared != nil {
			shared.used = true
		}
		if lead := e.globals.params[e.leads[name.text]]; lead != nil {
			lead.used = true
		}
	}
	e.readLookups()
	for _, part := range e.part.each {
		if !e.newName(part.name, "an enumeration") {
			continue
		}
		if p := e.params[part.name.text]; p != nil {
			p.used = true
			e.addFault(part.name.at, part.name.text, "an enumeration has the name of a param, in line "+strconv.Itoa(p.at.line), "rename one of the two")
			continue
		}
		e.each[part.name.text] = &declaredName{at: part.name.at, values: e.eachValues(part)}
	}
}

// readDelays reads repeat and hold.
func (e *entityCompiler) readDelays() {
	if len(e.part.repeat) > maxRepeats {
		s := e.part.repeat[maxRepeats]
		e.addFault(s.at, s.text, "repeat has more than "+strconv.Itoa(maxRepeats)+" delays", "remove some: each applies every row once more")
	}
	seen := map[time.Duration]bool{}
	for _, s := range e.part.repeat {
		before := len(e.faults)
		d := e.duration(s, "repeat", maxRepeat)
		if len(e.faults) == before && seen[d] {
			e.addFault(s.at, s.text, "the same delay twice", "remove one of the two")
		}
		if !seen[d] {
			seen[d] = true
			e.entity.repeat = append(e.entity.repeat, d)
		}
	}
	slices.Sort(e.entity.repeat)
	if s := e.part.hold; s.given {
		e.entity.hold = e.duration(s, "hold", maxHold)
	}
}

// finish checks what can only be seen when all entities are linked.
func (e *entityCompiler) finish() {
	all := e.reachable()
	e.entity.declared, e.entity.asks = all.declared, all.asks
	for name, p := range e.params {
		p.used = p.used || slices.ContainsFunc(e.links, func(l link) bool { return e.passesOn(l, name) })
	}
	for name, own := range e.own {
		if _, asked := e.slots.known[name]; !asked && !e.unclear && e.params[name].used {
			e.addFault(own.at, name, "no template of the entity "+e.entity.name+" asks this lookup: what it expands as gets what the row gives",
				"use {"+name+"} in a template of it, or remove the lookup")
		}
	}
	if all.whole && e.part.readable && !e.part.filled {
		e.addFault(e.part.name.at, e.part.name.text, "the entity invalidates nothing", "give it keys, patterns, sets, tags or as, or remove it")
	}
	e.checkSum()
	if all.whole && e.part.hold.given && !all.keys {
		e.addFault(e.part.hold.at, e.part.hold.text, "hold refuses fills of exact keys, and the entity has none", "give it keys or tags, or remove hold")
	}
}

// checkSum reports an entity whose rows the map always refuses, since the enumerations of its
// templates make too many keys together.
func (e *entityCompiler) checkSum() {
	limit, total := e.all.limits.KeysPerRow, 0
	for _, w := range e.written {
		made := 1
		for _, n := range w.template.slots {
			switch each := e.entity.slots[n].each; {
			case each != nil:
				made = product(made, len(each), limit)
			case n != idSlot:
				made = 0 // the row may have no value
			}
		}
		total += made
	}
	if total > limit {
		e.all.lookups.later.addFault(e.part.name.at, e.entity.name, "its enumerations make "+strconv.Itoa(total)+" keys of one row together, and limits.keys_per_row is "+strconv.Itoa(limit),
			"enumerate less, or use a pattern or an index set")
	}
}

// passesOn reports whether a param goes along to an entity that declares it.
func (e *entityCompiler) passesOn(l link, name string) bool {
	target := e.all.entities[l.target.text]
	if target == nil {
		return false
	}
	_, declared := slices.BinarySearch(target.reachable().declared, name)
	return declared
}

// readLookups reads the lookups that the entity has instead of shared ones.
func (e *entityCompiler) readLookups() {
	e.own = map[string]*sharedParam{}
	for _, part := range e.part.lookups {
		name := part.name
		switch lead := e.leads[name.text]; {
		case !e.newName(name, "a param"):
		case e.params[name.text] == nil:
			e.addFault(name.at, name.text, "a lookup of a param that the entity "+e.entity.name+" does not name", "add "+name.text+" to its params, or remove the lookup")
			if shared := e.globals.params[name.text]; shared != nil {
				shared.used = true
			}
		case lead != "":
			e.addFault(name.at, name.text, "its values go along with those of "+lead, "write the lookup under "+lead+": it finds both")
		case part.lookup != nil:
			own := &sharedParam{at: name.at, part: part}
			if shared := e.globals.params[name.text]; shared != nil {
				own.with = shared.with
				own.lookup = e.all.lookups.readLookup(part, own.with)
				if own.lookup.asksItself() {
					own.optional, own.fallback = shared.optional, shared.fallback
				}
			} else {
				own.lookup = e.all.lookups.readLookup(part, nil)
			}
			e.own[name.text] = own
		}
	}
}

// A visitState is the progress of the search for cycles at an entity.
type visitState uint8

const (
	unvisited visitState = iota
	visiting
	visited
)

// linkAliases turns the names of as into entities.
func (e *entityCompiler) linkAliases() {
	for _, l := range e.links {
		target := e.all.entities[l.target.text]
		if target == nil {
			e.addFault(l.target.at, l.target.text, "unknown entity in as", e.didYouMean(l.target.text, e.all.entityNames, "the entities are "+quoteList(e.all.entityNames)))
			continue
		}
		e.entity.as = append(e.entity.as, alias{target: target.entity, id: l.id})
	}
}

// findCycle reports each entry of as that leads back to an entity that is being visited.
func (e *entityCompiler) findCycle(path []string) {
	if e.visited != unvisited {
		return
	}
	e.visited, e.depth = visiting, len(path)
	path = append(path, e.entity.name)
	for _, l := range e.links {
		target := e.all.entities[l.target.text]
		if target == nil {
			continue
		}
		if target.visited == visiting {
			e.addFault(l.target.at, l.target.text, "a cycle: "+writeCycle(path[target.depth:], l.target.text), "remove one of these entries of as")
			continue
		}
		target.findCycle(path)
	}
	e.visited = visited
	e.all.visited = append(e.all.visited, e)
}

// writeCycle writes the names of a cycle, which begins and ends with name. Of a long one the end is
// left out.
func writeCycle(path []string, name string) string {
	shown := slices.Clone(path[:min(len(path), maxListed)])
	if left := len(path) - len(shown); left > 0 {
		shown = append(shown, "("+strconv.Itoa(left)+" more)")
	}
	return strings.Join(append(shown, name), " -> ")
}

// A reach is the totals of an entity and all entities that it expands as.
type reach struct {
	declared []string // names of params, sorted
	keys     bool     // exact keys
	asks     bool     // a template that uses a lookup
	whole    bool     // everything could be read
}

// reachable returns the reach of an entity. One that is part of a cycle, which is a fault, is not
// whole.
func (e *entityCompiler) reachable() *reach {
	if e.reach != nil {
		return e.reach
	}
	r := &reach{}
	e.reach = r // what a cycle gets
	all := reach{keys: len(e.entity.keys) > 0, whole: !e.unclear, declared: slices.Sorted(maps.Keys(e.params))}
	for t := range e.entity.templates() {
		all.asks = all.asks || slices.ContainsFunc(t.slots, func(n int) bool { return e.entity.lookupOf(n) != nil })
	}
	for _, l := range e.links {
		target := e.all.entities[l.target.text]
		if target == nil {
			continue
		}
		other := target.reachable()
		all.keys, all.asks, all.whole = all.keys || other.keys, all.asks || other.asks, all.whole && other.whole
		all.declared = union(all.declared, other.declared)
	}
	*r = all
	return r
}

// union merges sorted lists. It returns a where b has nothing new.
func union(a, b []string) []string {
	for _, name := range b {
		if _, known := slices.BinarySearch(a, name); !known {
			all := slices.Concat(a, b)
			slices.Sort(all)
			return slices.Compact(all)
		}
	}
	return a
}
