package invalidation

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
			return x.asks.add(n)
		case !ok:
			return s.notAnswered()
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

// notAnswered returns an error: the lookup of a slot was not run.
func (s *slot) notAnswered() error {
	if s.lookup.Always {
		return &RowError{Reason: MissingParameter, Param: s.name, Err: errNotAdded}
	}
	return &RowError{Reason: MissingParameter, Param: s.name, Err: errNotLookedUp}
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
	at := make([]int, len(s.by.axes))
	for i := range total {
		for j := len(at) - 1; j >= 0; j-- {
			length := len(f.slots[s.by.axes[j]].list)
			at[j] = i % length
			i /= length
		}
		by := make([]string, len(s.by.slots))
		for j, n := range s.by.slots {
			by[j] = f.slots[n].list[at[s.by.of(j)]]
		}
		if err := ask(Need{Lookup: s.lookup, By: by}); err != nil {
			return err
		}
	}
	return nil
}
