package invalidation

import (
	"cmp"
	"errors"
	"fmt"
)

// lookUp asks the lookup of a slot, and adds what it finds to the values that the slot, and those
// that go along with it, have by now.
func (x *expansion) lookUp(f *scope, lead int) error {
	s := &f.entity.slots[lead]
	found, err := []string(nil), errPending
	if !x.without {
		found, err = x.answer(f, s)
	}
	if err == errPending {
		for _, n := range f.entity.group(lead) {
			f.slots[n] = value{state: pending}
		}
		return nil
	}
	if err != nil {
		return err
	}
	v := &f.slots[lead]
	width := s.lookup.Values()
	if v.list == nil && width == 1 {
		v.list, v.state = found, present
		return nil
	}
	if err := x.spendValues((len(v.list) + len(found)/width) * (1 + len(s.with))); err != nil {
		return err
	}
	group := f.entity.group(lead)
	found = f.distinct(group, found, width)
	for _, n := range group {
		v := &f.slots[n]
		list := make([]string, len(v.list), len(v.list)+len(found)/width)
		copy(list, v.list)
		for i := f.entity.slots[n].column; i < len(found); i += width {
			list = append(list, found[i])
		}
		v.list, v.state = list, present
	}
	return nil
}

// distinct returns the results of a lookup without those that were given or found before. It
// compares only the values that the entity uses.
func (f *scope) distinct(group []int, found []string, width int) (all []string) {
	seen := make(map[string]struct{}, len(found)/width)
	row := make([]string, len(group))
	isNew := func(value func(slot int) string) bool {
		for i, n := range group {
			row[i] = value(n)
		}
		before := len(seen)
		seen[Need{By: row}.Key()] = struct{}{}
		return len(seen) > before
	}
	for i := range f.slots[group[0]].list {
		isNew(func(n int) string { return f.slots[n].list[i] })
	}
	for ; len(found) >= width; found = found[width:] {
		if isNew(func(n int) string { return found[f.entity.slots[n].column] }) {
			all = append(all, found[:width]...)
		}
	}
	return all
}

// answer returns what the lookup of a slot found, row by row, or errPending where questions are
// collected and one has no answer yet.
func (x *expansion) answer(f *scope, s *slot) (all []string, err error) {
	first, waits := true, false
	err = x.questions(f, s, func(n Need) error {
		found, ok := x.answers.Get(n)
		switch {
		case !ok && x.asks != nil:
			waits = true
			return x.asks.addNeed(n)
		case !ok && s.lookup.Always:
			return &RowError{Reason: MissingParameter, Param: s.name, Err: errNotAdded}
		case !ok:
			return &RowError{Reason: MissingParameter, Param: s.name, Err: errNotLookedUp}
		case first:
			all, first = found[:len(found):len(found)], false
		case len(all)+len(found) > x.limits.KeysPerRow*s.lookup.Values():
			return x.tooMany("the lookups of the row find more than %d values")
		default:
			all = append(all, found...)
		}
		return nil
	})
	if err == nil && waits {
		err = errPending
	}
	return all, err
}

// questions calls ask with every question that the lookup of a slot poses in a scope: one for each
// combination of the values that it is asked by. Need.By is ask's own.
func (x *expansion) questions(f *scope, s *slot, ask func(Need) error) error {
	waits := false
	for _, n := range s.by.slots {
		_, _, err := x.resolve(f, n)
		// all questions that can be asked now are asked together
		if waits = waits || err == errPending; err != nil && err != errPending {
			return err
		}
	}
	if waits {
		return errPending
	}
	total := f.combinations(&s.by, x.limits.KeysPerRow)
	if total == 0 {
		return nil
	}
	if err := x.spendQuestions(f, s, total); err != nil {
		return err
	}
	c := combiner{scope: f, choice: &s.by}
	for ok := c.toFirst(); ok; ok = c.next() {
		by := make([]string, len(s.by.slots))
		for j := range by {
			by[j] = c.value(j)
		}
		if err := ask(Need{Lookup: s.lookup, By: by}); err != nil {
			return err
		}
	}
	return nil
}

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
	x.asks = &needSet{x: &x, known: map[question]bool{}, foreseen: map[*entity]bool{}}
	if err := x.eachScope(e, x.needs); err != nil {
		return nil, err
	}
	return x.asks.list, nil
}

func (x *expansion) needs(f *scope) error {
	for t := range f.entity.templates() {
		on, err := x.active(f, t)
		if err != nil {
			return err
		}
		for _, n := range t.slots {
			if !on || f.entity.lookupOf(n) == nil {
				continue
			}
			if _, _, err := x.resolve(f, n); err != nil && err != errPending {
				return err
			}
		}
	}
	return nil
}

// A needSet collects needs and leaves out those it has.
type needSet struct {
	x     *expansion
	list  []Need
	known map[question]bool
	// foreseen are the entities that were visited before their ids are known, and ahead is set
	// while one is.
	foreseen map[*entity]bool
	ahead    bool
}

func (s *needSet) addNeed(n Need) error {
	key := n.question()
	if s.known[key] {
		return nil
	}
	if len(s.list) == s.x.limits.KeysPerRow {
		return s.x.tooManyQuestions(n.Lookup)
	}
	s.known[key] = true
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

var errGaps = errors.New("a null in it: nobody knows what goes with the values behind it; leave it out of each list")

// findTogether finds the values of a slot and of the slots that go together with it: lists of one
// length.
func (x *expansion) findTogether(f *scope, n int) error {
	lead := f.entity.slots[n].lead
	if lead != n && f.slots[lead].state != unresolved {
		return nil // they were found together
	}
	s, v := &f.entity.slots[lead], &f.slots[lead]
	given, err := x.givenTogether(f, lead)
	if err != nil {
		return err
	}
	if s.lookup != nil && s.lookup.isAsked(given) {
		return x.lookUp(f, lead)
	}
	err = s.orAbsent(v)
	for _, n := range s.with {
		f.slots[n].state = v.state
	}
	return err
}

// givenTogether takes what the row gives for a slot and those that go along with it, and reports
// whether it gives them: all or none, as many of each. One value goes with all of the others.
func (x *expansion) givenTogether(f *scope, lead int) (bool, error) {
	slots := f.entity.group(lead)
	given, longest, most := "", lead, 1 // given is the first that is
	for _, n := range slots {
		p, ok := x.row.Params.Get(f.entity.slots[n].name)
		if !ok {
			continue
		}
		if p.Gaps() {
			return false, badParam(p.Name, errGaps)
		}
		given = cmp.Or(given, p.Name)
		f.slots[n] = value{p.Values, present}
		if len(p.Values) != 1 && most == 1 {
			longest, most = n, len(p.Values)
		}
	}
	if most > x.limits.KeysPerRow {
		return false, x.tooMany("the row gives more than %d values that go together")
	}
	for _, n := range slots {
		v, name := &f.slots[n], f.entity.slots[n].name
		switch {
		case given == "" || v.state == present && len(v.list) == most:
		case v.state != present:
			return false, &RowError{Reason: MissingParameter, Param: name, Err: fmt.Errorf("the row does not give it, but what goes along with it: %s", given)}
		case len(v.list) != 1:
			return false, badParam(name, fmt.Errorf("it has %d values, and %s, with which they go together, has %d: give as many of each, or one that goes with all",
				len(v.list), f.entity.slots[longest].name, most))
		default:
			one := v.list[0]
			v.list = make([]string, most)
			for i := range v.list {
				v.list[i] = one
			}
		}
	}
	return given != "", nil
}
