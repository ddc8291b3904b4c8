package invalidation

// An Expanded is the result of one template for a row.
type Expanded struct {
	MapName
	// Names are keys, patterns or sets, in the order of the values.
	Names []string
}

// ExpandByTemplate expands a row like Expand, and returns the result of each template, including
// templates that make nothing of the row. It costs several times as much. The error is that of
// Expand.
func (m *Map) ExpandByTemplate(row Row, answers *Answers) ([]Expanded, error) {
	if _, err := m.Expand(row, answers); err != nil {
		return nil, err
	}
	x := expansion{limits: &m.limits, row: &row, answers: answers}
	var all []Expanded
	err := x.walk(m.entities[row.Entity], func(f *scope) (err error) {
		if err := x.measure(f, &planSize{}); err != nil { // resolves what is rendered
			return err
		}
		f.entity.kinds(func(kind MapNameKind, t *template) {
			if err != nil {
				return
			}
			made := Expanded{MapName: f.entity.mapName(kind, t)}
			if kind == KindPattern {
				made.Names, err = renderPatterns(nil, f, t, m.limits.PatternPrefix)
			} else {
				made.Names = renderExact(nil, f, t)
			}
			all = append(all, made)
		})
		return err
	})
	return all, err
}
