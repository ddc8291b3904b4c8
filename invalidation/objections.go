package invalidation

import (
	"slices"
	"strconv"
)

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
		if any = true; !slices.ContainsFunc(one.Params, func(p CaptureParam) bool { return p.Name == name }) {
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
