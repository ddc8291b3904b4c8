package invalidation

import (
	"cmp"
	"errors"
	"fmt"
)

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
	err = s.missing(v)
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
