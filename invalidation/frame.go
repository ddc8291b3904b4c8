package invalidation

import (
	"errors"
	"fmt"
)

// A frame is one entity in which a row expands, with one id: the row's own entity, or one that it expands as.
type frame struct {
	entity *entity
	slots  []value
}

// A value is what a slot holds in a frame.
type value struct {
	list  []string
	state valueState
}

type valueState uint8

const (
	unresolved valueState = iota
	present
	absent // an optional name that the row does not give
)

// An expansion is the work on one row.
type expansion struct {
	limits  *Limits
	row     *Row
	answers *Answers
}

var (
	errNotGiven    = errors.New("the row does not give it")
	errNotLookedUp = errors.New("the row does not give it, and its lookup was not run")
	errEmptyID     = errors.New("an id cannot be empty")
)

// resolve returns the values of a slot, and false for an optional name that is absent.
func (x *expansion) resolve(f *frame, n int) ([]string, bool, error) {
	v := &f.slots[n]
	if v.state == unresolved {
		if err := x.find(f, n, v); err != nil {
			return nil, false, err
		}
	}
	return v.list, v.state == present, nil
}

func (x *expansion) find(f *frame, n int, v *value) error {
	s := &f.entity.slots[n]
	if s.each != nil {
		v.list, v.state = s.each, present
		return nil
	}
	for i := range x.row.Params {
		if p := &x.row.Params[i]; p.Name == s.name {
			v.list, v.state = p.Values, present
			return nil
		}
	}
	switch {
	case s.lookup != nil:
		list, err := x.answer(f, s)
		if err != nil {
			return err
		}
		v.list, v.state = list, present
	case s.optional:
		v.state = absent
	default:
		return &RowError{Reason: MissingParameter, Param: s.name, Err: errNotGiven}
	}
	return nil
}

// answer returns what the lookup of a slot found.
func (x *expansion) answer(f *frame, s *slot) ([]string, error) {
	var all []string
	first := true
	err := x.questions(f, s, func(n Need) error {
		found, ok := x.answers.Get(n)
		switch {
		case !ok:
			return &RowError{Reason: MissingParameter, Param: s.name, Err: errNotLookedUp}
		case first:
			all, first = found[:len(found):len(found)], false
		default:
			all = append(all, found...)
		}
		return nil
	})
	return all, err
}

// questions calls ask with every question that the lookup of a slot poses in a frame: one for each combination of the
// values that it is asked by. Need.By is ask's own.
func (x *expansion) questions(f *frame, s *slot, ask func(Need) error) error {
	total := 1
	for _, n := range s.by {
		list, _, err := x.resolve(f, n)
		if err != nil {
			return err
		}
		total = product(total, len(list), x.limits.KeysPerRow)
	}
	if total > x.limits.KeysPerRow {
		return x.tooMany()
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

// active tells whether no optional name of a template is absent.
func (x *expansion) active(f *frame, t *template) bool {
	for _, n := range t.slots {
		if f.entity.slots[n].optional {
			if _, ok, _ := x.resolve(f, n); !ok {
				return false
			}
		}
	}
	return true
}

// count returns how many texts a template expands to in a frame, or more than the limit if they are too many.
func (x *expansion) count(f *frame, t *template) (int, error) {
	if len(t.slots) == 0 {
		return 1, nil
	}
	if !x.active(f, t) {
		return 0, nil
	}
	total := 1
	for _, n := range t.slots {
		list, _, err := x.resolve(f, n)
		if err != nil {
			return 0, err
		}
		total = product(total, len(list), x.limits.KeysPerRow)
	}
	return total, nil
}

// bytes returns how many bytes the n texts of a measured template have together, before anything is escaped. It does not
// overflow: n is within limits.keys_per_row, and so is each value within limits.params.
func (f *frame) bytes(t *template, n int) int {
	if n == 0 {
		return 0
	}
	total := 0
	for i := range t.parts {
		p := &t.parts[i]
		if p.slot == noSlot {
			total += n * len(p.text)
			continue
		}
		list, sum := f.slots[t.slots[p.slot]].list, 0
		for _, v := range list {
			sum += len(v)
		}
		total += n / len(list) * sum
	}
	return total
}

// product returns a*b, or limit+1 if it is more than limit. It does not overflow.
func product(a, b, limit int) int {
	if b > 0 && a > limit/b {
		return limit + 1
	}
	return a * b
}

func (x *expansion) tooMany() error {
	return &RowError{Reason: TooManyKeys, Err: fmt.Errorf("the row expands to more than %d keys (limits.keys_per_row)", x.limits.KeysPerRow)}
}

// framesPerKey bounds the frames of a row by its keys. A frame may have no key of its own, so there may be more of them.
const framesPerKey = 10

// frames returns the frame of an entity and those of all that it expands as, each before its own.
func (x *expansion) frames(all []frame, e *entity, id string) ([]frame, error) {
	if len(all) >= framesPerKey*x.limits.KeysPerRow {
		return nil, x.tooMany()
	}
	f := frame{entity: e, slots: make([]value, len(e.slots))}
	f.slots[idSlot] = value{list: []string{id}, state: present}
	all = append(all, f)
	for i := range e.as {
		a := &e.as[i]
		ids, err := x.ids(&f, a)
		if err != nil {
			return nil, err
		}
		for _, id := range ids {
			if all, err = x.frames(all, a.target, id); err != nil {
				return nil, err
			}
		}
	}
	return all, nil
}

// ids returns the ids with which a frame expands as another entity.
func (x *expansion) ids(f *frame, a *alias) ([]string, error) {
	n, err := x.count(f, &a.id)
	if err != nil {
		return nil, err
	}
	if n > x.limits.KeysPerRow { // product stops counting there
		return nil, x.tooMany()
	}
	ids := renderExact(make([]string, 0, n), f, &a.id)
	for _, id := range ids {
		if id == "" {
			return nil, badParam(f.entity.slots[a.id.slots[0]].name, fmt.Errorf("%w: it is the id of %q", errEmptyID, a.target.name))
		}
	}
	return ids, nil
}
