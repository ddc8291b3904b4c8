package invalidation

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/unstale/unstale/protocol"
)

// A visitState says how far the search for cycles has come with an entity.
type visitState uint8

const (
	unvisited visitState = iota
	visiting
	visited
)

// linkAliases turns the names of as into entities.
func (e *entityCompiler) linkAliases() {
	for _, l := range e.links {
		target := e.entities[l.target.text]
		if target == nil {
			e.add(l.target.at, l.target.text, "unknown entity in as", e.didYouMean(l.target.text, e.names, "the entities are "+quoteList(e.names)))
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
		target := e.entities[l.target.text]
		if target == nil {
			continue
		}
		if target.visited == visiting {
			e.add(l.target.at, l.target.text, "a cycle: "+writeCycle(path[target.depth:], l.target.text), "remove one of these entries of as")
			continue
		}
		target.findCycle(path)
	}
	e.visited = visited
}

// writeCycle writes the names of a cycle, which begins and ends with name. Of a long one the end is left out.
func writeCycle(path []string, name string) string {
	shown := slices.Clone(path[:min(len(path), maxListed)])
	if left := len(path) - len(shown); left > 0 {
		shown = append(shown, "("+strconv.Itoa(left)+" more)")
	}
	return strings.Join(append(shown, name), " -> ")
}

// A reach is what an entity and all that it expands as have together.
type reach struct {
	declared []string // names of params, sorted
	keys     bool     // exact keys
	asks     bool     // a template that uses a lookup
	whole    bool     // everything could be read
}

// reachable returns the reach of an entity. One that is part of a cycle, which is a fault, is not whole.
func (e *entityCompiler) reachable() *reach {
	if e.reach != nil {
		return e.reach
	}
	r := &reach{}
	e.reach = r // what a cycle gets
	all := reach{keys: len(e.entity.keys) > 0, whole: !e.unclear, declared: slices.Sorted(maps.Keys(e.params))}
	e.entity.templates(func(t *template) {
		for _, n := range t.slots {
			all.asks = all.asks || e.entity.slots[n].lookup != nil
		}
	})
	for _, l := range e.links {
		target := e.entities[l.target.text]
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

// checkUnused reports names that are declared and used nowhere: most often a spelling mistake.
func (c *compiler) checkUnused() {
	unclear := false
	for _, e := range c.order {
		unclear = unclear || e.unclear || !e.part.readable
		for _, names := range []struct {
			what     string
			declared map[string]*declaredName
		}{{"param", e.params}, {"enumeration", e.each}} {
			for name, d := range names.declared {
				if !d.used && !e.unclear {
					c.add(d.at, name, "the "+names.what+" is used nowhere in the entity "+e.entity.name, "use {"+name+"} in a template, or remove it")
				}
			}
		}
	}
	if unclear {
		return
	}
	for name, v := range c.vars {
		if !v.used {
			c.add(v.at, name, "the var is used nowhere", "use {"+name+"} in a template, or remove it")
		}
	}
	for name, p := range c.shared {
		if !p.used {
			c.add(p.at, name, "no entity names this param", "add "+name+" to the params of an entity, or remove it")
		}
	}
}

// checkNames reports index sets whose name a key or a stamp could have too: unlinking the key would lose the members.
func (c *compiler) checkNames() {
	keys, tags := map[string]writtenTemplate{}, map[string]writtenTemplate{}
	for _, e := range c.order {
		for _, w := range e.written {
			switch w.list {
			case "keys":
				keys[w.template.shape()] = w
			case "tags":
				keys[w.template.shape()] = w
				tags[strings.TrimPrefix(w.template.shape(), protocol.StampPrefix)] = w
			}
		}
	}
	for _, e := range c.order {
		for _, w := range e.written {
			if w.list != "sets" {
				continue
			}
			if key, clash := keys[w.template.shape()]; clash {
				c.add(w.at, w.text, "an index set with the name of a key, "+key.list+" in line "+strconv.Itoa(key.at.line), "use another name for one of the two")
			} else if tag, clash := tags[w.template.shape()]; clash {
				c.add(w.at, w.text, "an index set with the name of a tag, in line "+strconv.Itoa(tag.at.line), "use another name for one of the two, or only one of the two")
			}
		}
	}
}
