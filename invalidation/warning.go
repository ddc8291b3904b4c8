package invalidation

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/unstale/unstale/internal/sqltext"
	"github.com/unstale/unstale/protocol"
)

// warn writes advice about a map without faults.
func (c *compiler) warn(m *Map, advice *report) {
	direct, kind, from := c.lookupUsers(), c.kinds(), c.expandedFrom()
	for _, w := range c.lookups {
		users := comingTo(direct[w.lookup], from)
		if len(users) == 0 {
			continue // each entity has one of its own
		}
		warnLookup(w, slices.DeleteFunc(slices.Clone(users), func(entity string) bool { return m.captureGives(entity, w.text) }), advice)
		warnQuestionMark(w, advice)
		warnList(w, advice)
		c.warnCaptures(m, w.text, users, advice)
		warnKinds(w, direct[w.lookup], kind, advice)
	}
	for _, e := range c.order {
		for _, w := range e.written {
			e.warnTemplate(w, advice)
		}
		e.warnDelays(advice)
	}
}

// captureGives reports whether a capture writes the old values of a param into the rows of an
// entity, on moves and on deletes.
func (m *Map) captureGives(entity, param string) bool {
	return slices.ContainsFunc(m.captures, func(c Capture) bool {
		return c.Entity == entity && c.Update && c.Delete && slices.ContainsFunc(c.Params, func(p CaptureParam) bool { return p.Name == param })
	})
}

// warnLookup says what a lookup cannot know.
func warnLookup(w writtenLookup, users []string, advice *report) {
	if len(users) == 0 {
		return
	}
	give := "the old values as well as the new ones"
	switch by := w.lookup.By; {
	case !slices.Contains(by, idName) && !w.lookup.asksItself(): // it follows another one, or what the row gives
		give = strings.Join(by, " and ") + ", " + give
	case w.lookup.Always:
		give = "the old values"
	}
	advice.add(w.at, w.text, "looked up after the commit for "+quoteList(users)+": what was moved or deleted is not found any more",
		"on moves and deletes let the row give "+give)
}

// warnQuestionMark says of a statement that it is one of SQL for a single question only.
func warnQuestionMark(w writtenLookup, advice *report) {
	tokens := sqltext.Tokens(w.lookup.SQL)
	if i := slices.Index(tokens, "?"); i < 1 || i+1 == len(tokens) || tokens[i-1] != "(" || tokens[i+1] != ")" {
		advice.add(w.at, w.text, "the ? of its lookup is not in parentheses, and stands for a list: what several rows of a batch ask becomes ?,?", "write IN (?)")
	}
}

// warnList advises against a lookup that makes one value of several.
func warnList(w writtenLookup, advice *report) {
	tokens := sqltext.Tokens(w.lookup.SQL)
	for i, token := range tokens[:len(tokens)-1] {
		if word := strings.ToUpper(token); tokens[i+1] == "(" && slices.Contains(lists, word) && !w.lookup.Single {
			problem := word + " makes one value of several"
			if word == "GROUP_CONCAT" {
				problem += ", which the server cuts at group_concat_max_len"
			}
			advice.add(w.at, w.text, problem, cureList)
			return
		}
	}
}

// warnCaptures says of which entities no capture gives a param that is looked up.
func (c *compiler) warnCaptures(m *Map, param string, users []string, advice *report) {
	given, first := map[string]bool{}, map[string]capturePart{}
	for i, one := range m.captures {
		if slices.ContainsFunc(one.Params, func(p CaptureParam) bool { return p.Name == param }) {
			given[one.Entity] = true
		}
		if _, known := first[one.Entity]; !known {
			first[one.Entity] = c.doc.captures[i]
		}
	}
	for _, entity := range users {
		if part, captured := first[entity]; captured && !given[entity] {
			advice.add(part.at, part.table.text, "no capture of "+entity+" gives "+param+", which is looked up after the commit: of what was moved or deleted nothing is found",
				"capture the table that has it as well, with params: {"+param+": ...}")
		}
	}
}

// warnKinds says of a lookup by id that it is asked by the ids of entities that nothing in the map says to be of one kind.
func warnKinds(w writtenLookup, users []*entityCompiler, kind func(*entityCompiler) *entityCompiler, advice *report) {
	if len(users) < 2 || !slices.Contains(w.lookup.By, idName) {
		return
	}
	for _, e := range users[1:] {
		if kind(e) != kind(users[0]) {
			advice.add(w.at, w.text, "its lookup is asked by the id of "+users[0].entity.name+" and by that of "+e.entity.name+", and nothing says that these are ids of the same thing",
				"give the one for which it is wrong a lookup of its own: lookups: {"+w.text+": ...} in the entity")
			return
		}
	}
}

// kinds returns a function that is the same for entities of which one expands as the other with its own id.
func (c *compiler) kinds() func(*entityCompiler) *entityCompiler {
	same := map[*entityCompiler]*entityCompiler{}
	find := func(e *entityCompiler) *entityCompiler {
		last := e
		for same[last] != nil {
			last = same[last]
		}
		for e != last {
			e, same[e] = same[e], last
		}
		return last
	}
	for _, e := range c.order {
		for _, l := range e.links {
			target := c.entities[l.target.text]
			if parts := l.id.parts; len(parts) == 1 && parts[0].slot != noSlot && l.id.slots[0] == idSlot && find(e) != find(target) {
				same[find(e)] = find(target)
			}
		}
	}
	return find
}

// lookupUsers returns the entities whose own templates use each lookup, sorted.
func (c *compiler) lookupUsers() map[*Lookup][]*entityCompiler {
	direct := map[*Lookup][]*entityCompiler{}
	for _, name := range c.names {
		e := c.entities[name]
		for _, s := range e.entity.slots {
			if s.lookup != nil {
				direct[s.lookup] = append(direct[s.lookup], e)
			}
		}
	}
	return direct
}

// expandedFrom returns what expands as each entity.
func (c *compiler) expandedFrom() map[*entityCompiler][]*entityCompiler {
	from := map[*entityCompiler][]*entityCompiler{}
	for _, e := range c.order {
		for _, l := range e.links {
			target := c.entities[l.target.text]
			from[target] = append(from[target], e)
		}
	}
	return from
}

// comingTo returns the names of entities, and of those that expand as them, sorted.
func comingTo(all []*entityCompiler, from map[*entityCompiler][]*entityCompiler) (names []string) {
	seen := map[*entityCompiler]bool{}
	all = slices.Clone(all)
	for len(all) > 0 {
		e := all[len(all)-1]
		all = all[:len(all)-1]
		if !seen[e] {
			seen[e] = true
			names = append(names, e.entity.name)
			all = append(all, from[e]...)
		}
	}
	slices.Sort(names)
	return names
}

func (e *entityCompiler) warnTemplate(w writtenTemplate, advice *report) {
	if w.list == "patterns" {
		if !w.template.wild {
			advice.add(w.at, w.text, "a pattern without a wildcard scans all keys for one", "move it to keys")
		} else {
			advice.add(w.at, w.text, "a pattern is found by scanning all keys, some time after the row",
				"if its keys can be counted, list them under keys with each; otherwise let their writer keep an index set of them, and list it under sets")
			e.warnPrefix(w, advice)
		}
	}
	e.warnPrivate(w, advice)
	if strings.TrimLeft(w.text, curlyQuotes) != w.text {
		advice.add(w.at, w.text, "begins with a curly quote, which is part of the name", "write straight quotes")
	}
	for _, s := range w.segments {
		for rest := s.text; s.name == ""; {
			_, after, open := strings.Cut(rest, "{")
			name, _, closed := strings.Cut(after, "}")
			if !open || !closed {
				break
			}
			if rest = after; e.isKnown(name) {
				advice.add(w.at, w.text, "{{"+name+"}} is the literal text {"+name+"}, not the variable", "write {"+name+"}, or {{{"+name+"}}} for the value in braces")
			}
		}
	}
}

// warnPrefix says of a pattern that values of one character leave too little literal text.
func (e *entityCompiler) warnPrefix(w writtenTemplate, advice *report) {
	least := w.template.prefixSize
	for _, p := range w.template.parts[:w.template.prefixParts] {
		if p.slot == noSlot {
			continue
		}
		size := 1
		if each := e.entity.slots[w.template.slots[p.slot]].each; each != nil {
			size = len(slices.MinFunc(each, func(a, b string) int { return len(a) - len(b) }))
		}
		least += size
	}
	if least < e.limits.PatternPrefix {
		advice.add(w.at, w.text, "with short values it has "+strconv.Itoa(least)+" bytes of literal text before its first wildcard, and limits.pattern_prefix is "+
			strconv.Itoa(e.limits.PatternPrefix)+": such rows are dead-lettered", "start the pattern with more literal text")
	}
}

// private are beginnings of names that are ours in Redis.
var private = []struct{ prefix, what string }{
	{protocol.LeasePrefix, "the leases of readers"}, {protocol.HoldPrefix, "tombstones"}, {"unstale:", "beacons, sets that are taken apart and reports of readers"},
}

// warnPrivate says of a name, or of a pattern, that it is or may be one of ours.
func (e *entityCompiler) warnPrivate(w writtenTemplate, advice *report) {
	if len(w.template.parts) == 0 || w.template.parts[0].slot != noSlot {
		return
	}
	start, rest := w.template.parts[0].text, false
	if w.list == "patterns" {
		if i := strings.IndexAny(start, `*?\`); i >= 0 {
			start, rest = start[:i], true
		}
	}
	for _, p := range private {
		if strings.HasPrefix(start, p.prefix) || rest && start != "" && strings.HasPrefix(p.prefix, start) {
			advice.add(w.at, w.text, "names that begin with "+p.prefix+" are unstale's own: "+p.what, "use names that begin with something else")
		}
	}
}

func (e *entityCompiler) isKnown(name string) bool {
	return name == idName || e.params[name] != nil || e.each[name] != nil || e.compiler.each[name] != nil || e.vars[name] != nil
}

func (e *entityCompiler) warnDelays(advice *report) {
	for _, s := range e.part.repeat {
		if d, err := time.ParseDuration(s.text); err == nil && d <= e.entity.hold {
			advice.add(s.at, s.text, "repeat within hold ("+e.entity.hold.String()+"): nobody can fill before it", "repeat later than hold, or remove it")
		}
	}
}
