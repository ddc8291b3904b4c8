package invalidation

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/unstale/unstale/internal/sqltext"
	"github.com/unstale/unstale/protocol"
)

// An adviser writes advice about a map without faults.
type adviser struct {
	*report
	all      *compiler
	captures []Capture
}

// warn writes advice about a map without faults.
func (a *adviser) warn() {
	direct, kind, from := a.lookupUsers(), a.kinds(), a.expandedFrom()
	for _, w := range a.all.lookups.all {
		users := comingTo(direct[w.lookup], from)
		if len(users) == 0 {
			continue // each entity has its own
		}
		a.warnLookup(w, slices.DeleteFunc(slices.Clone(users), func(entity string) bool { return a.captureGives(entity, w.text) }))
		a.warnQuestionMark(w)
		a.warnList(w)
		a.warnCaptures(w.text, users)
		a.warnKinds(w, direct[w.lookup], kind)
	}
	for _, e := range a.all.order {
		for _, w := range e.written {
			a.warnTemplate(e, w)
		}
		a.warnDelays(e)
	}
	a.warnNames()
}

// captureGives reports whether a capture writes the old values of a param into the rows of an
// entity, on moves and on deletes.
func (a *adviser) captureGives(entity, param string) bool {
	return slices.ContainsFunc(a.captures, func(c Capture) bool {
		return c.Entity == entity && c.Update && c.Delete && c.gives(param)
	})
}

// warnLookup warns about values that a lookup cannot find.
func (a *adviser) warnLookup(w writtenLookup, users []string) {
	if len(users) == 0 {
		return
	}
	give := "the old values as well as the new ones"
	switch by := w.lookup.By; {
	// it follows another one, or what the row gives
	case !slices.Contains(by, idName) && !w.lookup.asksItself():
		give = strings.Join(by, " and ") + ", " + give
	case w.lookup.Always:
		give = "the old values"
	}
	a.addFault(w.at, w.text, "looked up after the commit for "+quoteList(users)+": what was moved or deleted is not found any more",
		"on moves and deletes let the row give "+give)
}

// ofOne are functions of one value that make the bytes of an ID.
var ofOne = []string{"UNHEX", "UUID_TO_BIN"}

// warnQuestionMark warns about a statement that works only for a single question.
func (a *adviser) warnQuestionMark(w writtenLookup) {
	tokens := sqltext.Tokens(w.lookup.SQL)
	i := slices.Index(tokens, "?")
	switch first, last := sqltext.Element(tokens); {
	case first < last && len(w.lookup.By) == 1:
	case first < last, slices.Contains(ofOne, wordAt(tokens, i-2)):
		a.addFault(w.at, w.text, "the ? of its lookup stands for a list, and "+tokens[i-2]+" takes one value", "write IN ("+tokens[i-2]+"(?)) beside a column, which makes it IN ("+tokens[i-2]+"(?),"+tokens[i-2]+"(?))")
	case i < 1 || i+1 == len(tokens) || tokens[i-1] != "(" || tokens[i+1] != ")":
		a.addFault(w.at, w.text, "the ? of its lookup is not in parentheses, and stands for a list: what several rows of a batch ask becomes ?,?", "write IN (?)")
	}
}

// warnList advises against a lookup that makes one value of several.
func (a *adviser) warnList(w writtenLookup) {
	tokens := sqltext.Tokens(w.lookup.SQL)
	for i, token := range tokens[:len(tokens)-1] {
		if word := strings.ToUpper(token); tokens[i+1] == "(" && slices.Contains(lists, word) && !w.lookup.Single {
			problem := word + " makes one value of several"
			if word == "GROUP_CONCAT" {
				problem += ", which the server cuts at group_concat_max_len"
			}
			a.addFault(w.at, w.text, problem, cureList)
			return
		}
	}
}

// warnCaptures warns about entities without a capture that gives a param that is looked up.
func (a *adviser) warnCaptures(param string, users []string) {
	given, first := map[string]bool{}, map[string]capturePart{}
	for i, one := range a.captures {
		if one.gives(param) {
			given[one.Entity] = true
		}
		if _, known := first[one.Entity]; !known {
			first[one.Entity] = a.all.doc.captures[i]
		}
	}
	for _, entity := range users {
		if part, captured := first[entity]; captured && !given[entity] {
			a.addFault(part.at, part.table.text, "no capture of "+entity+" gives "+param+", which is looked up after the commit: of what was moved or deleted nothing is found",
				"capture the table that has it as well, with params: {"+param+": ...}")
		}
	}
}

// warnKinds warns about a lookup by ID that is asked by the IDs of entities that the map does not
// declare to be of one kind.
func (a *adviser) warnKinds(w writtenLookup, users []*entityCompiler, kind func(*entityCompiler) *entityCompiler) {
	if len(users) < 2 || !slices.Contains(w.lookup.By, idName) {
		return
	}
	for _, e := range users[1:] {
		if kind(e) != kind(users[0]) {
			a.addFault(w.at, w.text, "its lookup is asked by the id of "+users[0].entity.name+" and by that of "+e.entity.name+", and nothing says that these are ids of the same thing",
				"give the one for which it is wrong a lookup of its own: lookups: {"+w.text+": ...} in the entity")
			return
		}
	}
}

// kinds returns a function that maps entities to a representative: entities have the same one if
// one expands as the other with its own ID.
func (a *adviser) kinds() func(*entityCompiler) *entityCompiler {
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
	for _, e := range a.all.order {
		for _, l := range e.links {
			target := a.all.entities[l.target.text]
			if parts := l.id.parts; len(parts) == 1 && parts[0].slot != noSlot && l.id.slots[0] == idSlot && find(e) != find(target) {
				same[find(e)] = find(target)
			}
		}
	}
	return find
}

// lookupUsers returns the entities whose own templates use each lookup, sorted.
func (a *adviser) lookupUsers() map[*Lookup][]*entityCompiler {
	direct := map[*Lookup][]*entityCompiler{}
	for _, name := range a.all.entityNames {
		e := a.all.entities[name]
		for _, s := range e.entity.slots {
			if s.lookup != nil {
				direct[s.lookup] = append(direct[s.lookup], e)
			}
		}
	}
	return direct
}

// expandedFrom returns what expands as each entity.
func (a *adviser) expandedFrom() map[*entityCompiler][]*entityCompiler {
	from := map[*entityCompiler][]*entityCompiler{}
	for _, e := range a.all.order {
		for _, l := range e.links {
			target := a.all.entities[l.target.text]
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

func (a *adviser) warnTemplate(e *entityCompiler, w writtenTemplate) {
	if w.list == "patterns" {
		if !w.template.wild {
			a.addFault(w.at, w.text, "a pattern without a wildcard scans all keys for one", "move it to keys")
		} else {
			a.addFault(w.at, w.text, "a pattern is found by scanning all keys, some time after the row",
				"if its keys can be counted, list them under keys with each; otherwise let their writer keep an index set of them, and list it under sets")
			a.warnPrefix(e, w)
		}
	}
	a.warnPrivate(w)
	if strings.TrimLeft(w.text, curlyQuotes) != w.text {
		a.addFault(w.at, w.text, "begins with a curly quote, which is part of the name", "write straight quotes")
	}
	for _, s := range w.segments {
		for rest := s.Text; s.Name == ""; {
			_, after, open := strings.Cut(rest, "{")
			name, _, closed := strings.Cut(after, "}")
			if !open || !closed {
				break
			}
			if rest = after; a.isKnown(e, name) {
				a.addFault(w.at, w.text, "{{"+name+"}} is the literal text {"+name+"}, not the variable", "write {"+name+"}, or {{{"+name+"}}} for the value in braces")
			}
		}
	}
}

// warnPrefix warns about a pattern whose values of one character leave too little literal text.
func (a *adviser) warnPrefix(e *entityCompiler, w writtenTemplate) {
	if least, _ := e.entity.prefixSizes(&w.template); least < a.all.limits.PatternPrefix {
		a.addFault(w.at, w.text, "with short values it has "+strconv.Itoa(least)+" bytes of literal text before its first wildcard, and limits.pattern_prefix is "+
			strconv.Itoa(a.all.limits.PatternPrefix)+": such rows are dead-lettered", "start the pattern with more literal text")
	}
}

// private are the prefixes of internal names in Redis.
var private = []struct{ prefix, what string }{
	{protocol.LeasePrefix, "the leases of readers"}, {protocol.HoldPrefix, "tombstones"}, {"unstale:", "beacons, sets that are taken apart and reports of readers"},
}

// warnPrivate warns about a name, or a pattern, that is or may be internal.
func (a *adviser) warnPrivate(w writtenTemplate) {
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
			a.addFault(w.at, w.text, "names that begin with "+p.prefix+" are unstale's own: "+p.what, "use names that begin with something else")
		}
	}
}

// isKnown reports whether a template of an entity may use a name.
func (a *adviser) isKnown(e *entityCompiler, name string) bool {
	return name == idName || e.params[name] != nil || e.each[name] != nil || e.globals.each[name] != nil || e.vars[name] != nil
}

func (a *adviser) warnDelays(e *entityCompiler) {
	for _, s := range e.part.repeat {
		if d, err := time.ParseDuration(s.text); err == nil && d <= e.entity.hold {
			a.addFault(s.at, s.text, "repeat within hold ("+e.entity.hold.String()+"): nobody can fill before it", "repeat later than hold, or remove it")
		}
	}
}

// objections judge one way in which a template meets a text.
type objections struct {
	*coverage
	read *compiledRead
	root *entity // of the row
	of   *entity // of the template
	t    *template
	// others are holes that the row is not about
	others []int
	// first is the most serious one, or nil: the template covers the text. sameThing reports
	// whether all names fit.
	first     *miss
	sameThing bool
}

func (o *objections) object(rank int, problem, cure string) {
	if o.first == nil || rank > o.first.rank {
		o.first = &miss{rank, problem, cure}
	}
}

// where names the template.
func (o *objections) where() string {
	return strconv.Quote(o.t.source) + " of " + o.of.name + " in line " + strconv.Itoa(o.t.at.line)
}

func (o *objections) judge(pairs []pair, ids []*alias) {
	o.sameThing = true
	for _, p := range pairs {
		if p.slot != noSlot {
			o.judgePair(p)
		}
	}
	o.judgeNames(o.of, o.t.slots, pairs)
	source := o.root
	for _, a := range ids {
		o.judgeNames(source, a.id.slots, nil)
		source = a.target
	}
	o.judgeIDs(pairs, ids)
}

// judgeIDs compares the hole that meets the id of the template's entity with the ids with which the
// row expands as it.
func (o *objections) judgeIDs(pairs []pair, ids []*alias) {
	at := slices.IndexFunc(pairs, func(p pair) bool { return p.slot == idSlot })
	if at < 0 {
		return
	}
	hole := &o.read.Holes[pairs[at].hole]
	composed := false
	for i, a := range slices.Backward(ids) {
		source := o.root
		if i > 0 {
			source = ids[i-1].target
		}
		composed = composed || len(a.id.parts) != 1
		whole := !composed && len(a.id.slots) == 1
		ofID := slices.Contains(a.id.slots, idSlot)
		if whole && ofID {
			continue // the same hole is the id of source
		}
		open := false // for any value
		for _, n := range a.id.slots {
			s := &source.slots[n]
			lead := &source.slots[s.lead]
			asked := lead.lookup != nil && !lead.lookup.asksItself()
			switch {
			case s.each != nil:
				open = open || whole && hole.Values != nil && len(without(hole.Values, s.each)) == 0
				if !whole {
					o.object(2, source.name+" expands as "+a.target.name+" with the id "+strconv.Quote(a.id.source)+", which contains listed values", "use a param for the id")
				}
			case whole && lead.fallback != nil && !asked && !o.captured(s.name):
				open = true
				o.judgeDefault(s, n, []pair{{pairs[at].hole, n}})
			case whole && n != idSlot && s.name != hole.Name && s.name != a.target.name+"_id" && source.declares(a.target.name+"_id"):
				open = true
				o.object(2, source.name+" expands as "+a.target.name+" with the id "+strconv.Quote(a.id.source)+", and also has "+a.target.name+"_id", "use {"+a.target.name+"_id} there, or in a template of "+source.name)
			case !whole && n != idSlot && (s.name == hole.Name || hole.Entity != "" && s.name == hole.Entity+"_id"):
				o.object(3, "{"+hole.Name+"} is only a part of the id "+strconv.Quote(a.id.source)+", with which "+source.name+" expands as "+a.target.name, "rename one of the two")
			case !whole && lead.fallback != nil && !asked && !o.captured(s.name):
				o.object(1, "a row of "+o.root.name+" without "+s.name+" reaches only some ids of "+a.target.name, "let a capture give "+s.name)
			default:
				open = true
			}
		}
		if !open {
			o.object(2, source.name+" expands as "+a.target.name+" with the id "+strconv.Quote(a.id.source)+" only", "use a param for the id, or list its values in the read")
		}
		if !ofID {
			return
		}
	}
}

// judgePair compares a hole with the name that it meets.
func (o *objections) judgePair(p pair) {
	hole, s := &o.read.Holes[p.hole], &o.of.slots[p.slot]
	if s.each != nil {
		o.steps -= len(hole.Values)
		missing := without(hole.Values, s.each)
		switch {
		case hole.Values == nil:
			o.object(2, "{"+s.name+"} of "+o.where()+" has listed values, and the read does not list those of {"+hole.Name+"}",
				"list them in the read, as each: {"+hole.Name+": ...}, or use a pattern")
		case len(missing) > 0:
			o.object(1, "{"+s.name+"} of "+o.where()+" lacks the values "+quoteList(missing)+" of {"+hole.Name+"}", "list the same values in both places")
		}
		return
	}
	isID := p.slot == idSlot
	if (isID || s.name != hole.Name || hole.Entity+"_id" == s.name) && slices.Contains(o.others, p.hole) {
		o.object(2, "the read has several holes for IDs of "+hole.Entity+", and "+o.where()+" has the ID in the place of {"+hole.Name+"} only", "add a template for each hole")
	}
	switch {
	case !isID && (s.name == hole.Name || hole.Entity != "" && s.name == hole.Entity+"_id"):
	case isID && hole.Entity == o.of.name:
	default:
		name := "{" + s.name + "}"
		if isID {
			name = "the id of " + o.of.name
		}
		o.sameThing = false
		o.object(3, "{"+hole.Name+"} has the place of "+name+" in "+o.where()+": the same shape, and another thing",
			"rename the hole, or say whose ID it is: of: {"+hole.Name+": "+o.of.name+"}")
	}
}

// judgeNames looks for names without which a row makes nothing of a template, or only a part.
func (o *objections) judgeNames(e *entity, slots []int, pairs []pair) {
	for _, n := range slots {
		s := &e.slots[n]
		lead := &e.slots[s.lead]
		switch {
		case s.each != nil || lead.lookup != nil && !lead.lookup.asksItself() || o.captured(s.name):
		case lead.fallback != nil || s.fallback != nil:
			o.judgeDefault(s, n, pairs)
			if pairs == nil && len(s.fallback) == 0 {
				o.object(1, "a row of "+o.root.name+" without "+s.name+" does not expand as "+o.of.name,
					"give the param a default that is not empty, or make it required, or let a capture give it")
			}
		case s.optional || lead.optional:
			o.object(1, "a row of "+o.root.name+" without "+s.name+" makes nothing of "+o.where(),
				"give the param a default, or make it required, or let a capture give it")
		}
	}
}

// judgeDefault compares a default, which stands for all rows that do not give the name.
func (o *objections) judgeDefault(s *slot, n int, pairs []pair) {
	for _, p := range pairs {
		if p.slot != n {
			continue
		}
		values := o.read.Holes[p.hole].Values
		if values == nil || len(without(values, s.fallback)) > 0 {
			o.object(1, "a row of "+o.root.name+" without "+s.name+" reaches only "+quoteList(s.fallback)+" by "+o.where(),
				"list the values of {"+o.read.Holes[p.hole].Name+"} in the default, or let a capture give "+s.name)
		}
	}
}

// captured reports whether every capture of the row's entity gives a name.
func (o *objections) captured(name string) bool {
	any := false
	for _, one := range o.m.captures {
		if one.Entity != o.root.name {
			continue
		}
		if any = true; !one.gives(name) {
			return false
		}
	}
	return any
}

// without returns the values of all that some lacks.
func without(all, some []string) []string {
	have := make(map[string]bool, len(some))
	for _, v := range some {
		have[v] = true
	}
	return slices.DeleteFunc(slices.Clone(all), func(v string) bool { return have[v] })
}
