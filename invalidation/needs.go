package invalidation

// Needs returns what row still needs from lookups before Expand can build its plan, without duplicates. A lookup is
// needed where a template uses its name and the row does not give it; a list that the row gives replaces it even if it
// is empty. The error is a *RowError, as from Expand; faults that need no lookup to show are left to Expand. There are
// limits.keys_per_row of them at most, which ask by [MaxQuestionBytes] together at most.
func (m *Map) Needs(row Row) ([]Need, error) {
	e, err := m.entity(&row)
	if err != nil || !e.asks {
		return nil, err
	}
	return m.needs(e, row)
}

func (m *Map) needs(e *entity, row Row) ([]Need, error) {
	x := expansion{limits: &m.limits, row: &row}
	all := needSet{x: &x, known: map[*Lookup]map[string]struct{}{}}
	if err := x.walk(e, func(f *scope) error { return x.needs(f, &all) }); err != nil {
		return nil, err
	}
	return all.list, nil
}

func (x *expansion) needs(f *scope, all *needSet) (err error) {
	asked := make([]bool, len(f.slots))
	f.entity.templates(func(t *template) {
		if err != nil || !x.active(f, t) {
			return
		}
		for _, n := range t.slots {
			s := &f.entity.slots[n]
			if s.lookup == nil || asked[n] {
				continue
			}
			asked[n] = true
			if _, own := x.row.Params.Get(s.name); own {
				continue
			}
			if err = x.questions(f, s, all.add); err != nil {
				return
			}
		}
	})
	return err
}

// A needSet collects needs and leaves out those it has.
type needSet struct {
	x     *expansion
	list  []Need
	known map[*Lookup]map[string]struct{}
}

func (s *needSet) add(n Need) error {
	known := s.known[n.Lookup]
	if known == nil {
		known = map[string]struct{}{}
		s.known[n.Lookup] = known
	}
	key := n.Key()
	if _, twice := known[key]; twice {
		return nil
	}
	if len(s.list) == s.x.limits.KeysPerRow {
		return s.x.tooManyQuestions(n.Lookup)
	}
	known[key] = struct{}{}
	s.list = append(s.list, n)
	return nil
}

// Undeclared returns the names of row's parameters that the map does not know for its entity, in the row's order. They
// are ignored. A row of an unknown entity has none.
func (m *Map) Undeclared(row Row) []string {
	e := m.entities[row.Entity]
	if e == nil {
		return nil
	}
	var names []string
	for _, p := range row.Params {
		if !e.declares(p.Name) {
			names = append(names, p.Name)
		}
	}
	return names
}
