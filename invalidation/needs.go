package invalidation

// Needs returns what row needs from lookups, beyond answers, before Expand can build its plan, without duplicates; nil is as good as no
// answers. Lookups may follow each other: what is returned is what can be asked by now, and whoever has put the answers calls again until
// nothing is left, once for each of [Map.Ranks]. A lookup is needed where a template uses its name and the row does not give it, or where it
// is asked always; a list that the row gives replaces one that is not, even if it is empty. The error is a *RowError, as from Expand; faults
// that need no lookup to show are left to Expand. There are limits.keys_per_row of them at most, which ask by [MaxQuestionBytes] together.
func (m *Map) Needs(row Row, answers *Answers) ([]Need, error) {
	e, err := m.entity(&row)
	if err != nil || !e.asks {
		return nil, err
	}
	return m.needs(e, row, answers)
}

// Ranks returns one more than the highest [Lookup.Rank], or 0 for a map without lookups.
func (m *Map) Ranks() int { return m.ranks }

func (m *Map) needs(e *entity, row Row, answers *Answers) ([]Need, error) {
	x := expansion{limits: &m.limits, row: &row, answers: answers}
	x.asks = &needSet{x: &x, known: map[*Lookup]map[string]struct{}{}, foreseen: map[*entity]bool{}}
	if err := x.walk(e, x.needs); err != nil {
		return nil, err
	}
	return x.asks.list, nil
}

func (x *expansion) needs(f *scope) (err error) {
	need := func(t *template) {
		if err != nil {
			return
		}
		on := false
		if on, err = x.active(f, t); err != nil || !on {
			return
		}
		for _, n := range t.slots {
			if f.entity.lookupOf(n) == nil {
				continue
			}
			if _, _, err = x.resolve(f, n); err == errPending {
				err = nil
			} else if err != nil {
				return
			}
		}
	}
	f.entity.templates(need)
	for i := range f.entity.as {
		need(&f.entity.as[i].id)
	}
	return err
}

// A needSet collects needs and leaves out those it has.
type needSet struct {
	x     *expansion
	list  []Need
	known map[*Lookup]map[string]struct{}
	// foreseen are the entities that were visited before their ids are known, and ahead is set while one is.
	foreseen map[*entity]bool
	ahead    bool
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
