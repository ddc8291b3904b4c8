package invalidation

// answer returns what the lookup of a slot found.
func (x *expansion) answer(f *scope, s *slot) ([]string, error) {
	var all []string
	first := true
	err := x.questions(f, s, func(n Need) error {
		found, ok := x.answers.Get(n)
		switch {
		case !ok:
			return &RowError{Reason: MissingParameter, Param: s.name, Err: errNotLookedUp}
		case first:
			all, first = found[:len(found):len(found)], false
		case len(all)+len(found) > x.limits.KeysPerRow:
			return x.tooMany("the lookups of the row find more than %d values")
		default:
			all = append(all, found...)
		}
		return nil
	})
	return all, err
}

// questions calls ask with every question that the lookup of a slot poses in a scope: one for each combination of the
// values that it is asked by. Need.By is ask's own.
func (x *expansion) questions(f *scope, s *slot, ask func(Need) error) error {
	total := 1
	for _, n := range s.by {
		list, _, err := x.resolve(f, n)
		if err != nil {
			return err
		}
		total = product(total, len(list), x.limits.KeysPerRow)
	}
	if total == 0 {
		return nil
	}
	if err := x.spendQuestions(f, s, total); err != nil {
		return err
	}
	for i := range total {
		by := make([]string, len(s.by))
		for j := len(s.by) - 1; j >= 0; j-- {
			list := f.slots[s.by[j]].list
			by[j] = list[i%len(list)]
			i /= len(list)
		}
		if err := ask(Need{Lookup: s.lookup, By: by}); err != nil {
			return err
		}
	}
	return nil
}
