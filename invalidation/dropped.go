package invalidation

import "errors"

// A Dropped is a template that makes nothing of a row, since the row does not give an optional name
// that the template uses.
type Dropped struct {
	Entity string // that has the template: the row's, or one as which it expands
	Text   string // the template, as written
	Param  string // the name
}

// FirstDropped returns the first of the templates that Plan.Dropped counts, and false if there is
// none, or if Expand refuses the row before it reaches one. It costs several times as much as
// Expand.
func (m *Map) FirstDropped(row Row, answers *Answers) (first Dropped, found bool) {
	e, err := entityOf(m.entities, &row)
	if err != nil {
		return first, false
	}
	x := expansion{limits: &m.limits, row: &row, answers: answers}
	stop := errors.New("found")
	_ = x.walk(e, func(f *scope) error {
		look := func(t *template) {
			if name := x.absentName(f, t); name != "" && !found {
				first, found = Dropped{f.entity.name, t.source, name}, true
			}
		}
		f.entity.templates(look)
		for i := range f.entity.as {
			look(&f.entity.as[i].id)
		}
		if found {
			return stop
		}
		return nil
	})
	return first, found
}

// absentName returns the first optional name of a template that the row does not give, or "".
func (x *expansion) absentName(f *scope, t *template) string {
	for _, n := range t.slots {
		s := &f.entity.slots[n]
		if !s.optional {
			continue
		}
		if _, given, _ := x.resolve(f, n); !given {
			return s.name
		}
	}
	return ""
}
