package invalidation

import (
	"slices"
	"strconv"
)

// checkParams reports a capture whose rows the map always refuses: they lack a param that a
// template needs, or give only some of those whose values go together.
func (c *captureReader) checkParams(part capturePart, one *Capture) {
	e := c.all.entities[one.Entity]
	if e == nil || len(c.faults) > 0 {
		return
	}
	row := capturedRow{one, map[*entity]bool{}}
	if param, by := row.lacks(e.entity); param != "" {
		c.all.lookups.later.add(part.at, part.table.text, "its rows do not give "+param+", which "+by+" needs: all of them become dead letters",
			"add "+param+" to its params, or make it optional")
	}
}

// A capturedRow is any row of a capture.
type capturedRow struct {
	by   *Capture
	seen map[*entity]bool
}

func (r *capturedRow) gives(name string) bool {
	return name == idName || slices.ContainsFunc(r.by.Params, func(p CaptureParam) bool { return p.Name == name })
}

// lacks returns a param without which the row never expands, and the template that needs it, or "".
func (r *capturedRow) lacks(e *entity) (param, by string) {
	if r.seen[e] {
		return "", ""
	}
	r.seen[e] = true
	look := func(t *template) {
		if param == "" {
			if name := r.lacking(e, t); name != "" {
				param, by = name, strconv.Quote(t.source)+" of "+e.name
			}
		}
	}
	e.templates(look)
	for i := range e.as {
		if look(&e.as[i].id); param == "" && r.makes(e, &e.as[i].id) {
			param, by = r.lacks(e.as[i].target)
		}
	}
	return param, by
}

// lacking returns a name of a template that the row lacks, or "". It returns "" too if the row may
// make nothing of the template.
func (r *capturedRow) lacking(e *entity, t *template) (name string) {
	for _, n := range t.slots {
		s, lead := &e.slots[n], &e.slots[e.slots[n].lead]
		group := e.group(s.lead)
		missing := slices.IndexFunc(group, func(n int) bool { return !r.gives(e.slots[n].name) })
		switch {
		case s.each != nil || missing < 0:
		case slices.ContainsFunc(group, func(n int) bool { return r.gives(e.slots[n].name) }):
			name = e.slots[group[missing]].name
		case s.optional || lead.optional:
			return ""
		case lead.lookup == nil && lead.fallback == nil && s.fallback == nil:
			name = s.name
		}
	}
	return name
}

// makes reports whether the row makes something of a template for sure.
func (r *capturedRow) makes(e *entity, t *template) bool {
	return !slices.ContainsFunc(t.slots, func(n int) bool {
		return e.slots[n].each == nil && len(e.slots[n].fallback) == 0 && !r.gives(e.slots[n].name)
	})
}
