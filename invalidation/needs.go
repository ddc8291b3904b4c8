package invalidation

// Needs returns the lookups that row needs, beyond answers, before Expand can build its plan,
// without duplicates. nil means no answers. Lookups can depend on each other: Needs returns those
// that can run now. The caller puts the answers and calls it again until it returns none, once for
// each of [Map.Ranks]. A lookup is needed if a template uses its name and the row does not give it,
// or if it always runs. A list in the row replaces a lookup that does not always run, even if the
// list is empty. The error is a *RowError, as from Expand; other errors are left to Expand. It
// returns at most limits.keys_per_row needs, with [MaxQuestionBytes] in total.
func (m *Map) Needs(row Row, answers *Answers) ([]Need, error) {
	e, err := entityOf(m.entities, &row)
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
	// foreseen are the entities that were visited before their ids are known, and ahead is set
	// while one is.
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

// Undeclared returns the names of row's parameters that the map does not know for its entity, in
// the row's order. They are ignored. A row of an unknown entity has none.
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
