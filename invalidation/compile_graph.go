package invalidation

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// A visitMark says how far the search for cycles has come with an entity.
type visitMark uint8

const (
	unvisited visitMark = iota
	visiting
	visited
)

// linkAliases turns the names of as into entities.
func (e *entityCompiler) linkAliases() {
	known := slices.Sorted(maps.Keys(e.entities))
	for _, l := range e.links {
		target := e.entities[l.target.text]
		if target == nil {
			if !strings.Contains(e.unread, l.target.text) {
				e.add(l.target.at, l.target.text, "unknown entity in as", didYouMean(l.target.text, known, "the entities are "+quoteList(known)))
			}
			continue
		}
		e.entity.as = append(e.entity.as, alias{target: target.entity, id: l.id})
	}
}

// findCycle reports each entry of as that leads back to an entity that is being visited.
func (e *entityCompiler) findCycle(path []string) {
	if e.mark != unvisited {
		return
	}
	e.mark = visiting
	path = append(path, e.entity.name)
	for _, l := range e.links {
		target := e.entities[l.target.text]
		if target == nil {
			continue
		}
		if target.mark == visiting {
			cycle := append(slices.Clone(path[slices.Index(path, l.target.text):]), l.target.text)
			e.add(l.target.at, l.target.text, "a cycle: "+strings.Join(cycle, " -> "), "remove one of these entries of as")
			continue
		}
		target.findCycle(path)
	}
	e.mark = visited
}

// reachable returns the entity and all that it expands as, each once.
func (e *entityCompiler) reachable() []*entityCompiler {
	all := []*entityCompiler{e}
	for i := 0; i < len(all); i++ {
		for _, l := range all[i].links {
			if target := e.entities[l.target.text]; target != nil && !slices.Contains(all, target) {
				all = append(all, target)
			}
		}
	}
	return all
}

// checkUnused reports names that are declared and used nowhere: most often a spelling mistake.
func (c *compiler) checkUnused() {
	unclear := c.partial
	for _, e := range c.order {
		unclear = unclear || e.unclear || !e.part.readable
		for _, names := range []struct {
			what     string
			declared map[string]*declaredName
		}{{"param", e.params}, {"enumeration", e.each}} {
			for name, d := range names.declared {
				if !d.used && !e.unclear && !c.partial {
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
				tags[strings.TrimPrefix(w.template.shape(), stampPrefix)] = w
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
