package invalidation

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

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
			e.add(l.target.at, l.target.text, "unknown entity in as", e.didYouMean(l.target.text, e.all.entityNames, "the entities are "+quoteList(e.all.entityNames)))
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
			e.add(l.target.at, l.target.text, "a cycle: "+writeCycle(path[target.depth:], l.target.text), "remove one of these entries of as")
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
	e.entity.templates(func(t *template) { all.asks = all.asks || e.entity.asksFor(t) })
	for _, l := range e.links {
		all.asks = all.asks || e.entity.asksFor(&l.id)
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
