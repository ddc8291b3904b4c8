package invalidation

import (
	"errors"
	"fmt"
)

// A scope is one entity as which a row expands, with one id: the row's own entity, or another one.
type scope struct {
	entity *entity
	slots  []value
	id     [1]string // backs the list of the id's slot
}

// A value is the content of a slot in a scope.
type value struct {
	list  []string
	state valueState
}

type valueState uint8

const (
	unresolved valueState = iota
	present
	absent  // an optional name that the row does not give
	pending // its lookup has questions without an answer
)

// An expansion is the work on one row.
type expansion struct {
	limits  *Limits
	row     *Row
	answers *Answers
	asks    *needSet // collects the questions without an answer; nil: they are an error
	without bool     // no lookup is asked: what one would find is pending
	spent   spending
	free    []*scope // that a walk has left behind
	dropped int      // templates that lack an optional name
}

var (
	errNotGiven    = errors.New("the row does not give it")
	errNotRun      = errors.New("its lookup was not run")
	errNotLookedUp = fmt.Errorf("the row does not give it, and %w", errNotRun)
	errNotAdded    = fmt.Errorf("it is looked up whatever the row gives, and %w", errNotRun)
	errEmptyID     = errors.New("an id cannot be empty")
	// only while questions are collected
	errPending = errors.New("known when the lookups before it are answered")
)

// resolve returns the values of a slot, and false for an optional name that is absent.
func (x *expansion) resolve(f *scope, n int) ([]string, bool, error) {
	v := &f.slots[n]
	if v.state == unresolved {
		if err := x.find(f, n, v); err != nil {
			return nil, false, err
		}
	}
	if v.state == pending {
		return nil, false, errPending
	}
	return v.list, v.state == present, nil
}

func (x *expansion) find(f *scope, n int, v *value) error {
	s := &f.entity.slots[n]
	if s.each != nil {
		v.list, v.state = s.each, present
		return nil
	}
	if s.together {
		return x.findTogether(f, n)
	}
	if p, given := x.row.Params.Get(s.name); given {
		v.list, v.state = p.Values, present
		if s.lookup == nil || !s.lookup.Always {
			return nil
		}
	}
	if v.state == unresolved && s.fallback != nil {
		v.list, v.state = s.fallback, present
	}
	if s.lookup != nil && s.lookup.isAsked(v.state == present) {
		return x.lookUp(f, n)
	}
	return s.orAbsent(v)
}

// orAbsent returns the result for a value that nothing gives.
func (s *slot) orAbsent(v *value) error {
	switch {
	case v.state == present:
	case s.optional:
		v.state = absent
	default:
		return &RowError{Reason: MissingParameter, Param: s.name, Err: errNotGiven}
	}
	return nil
}

// active reports whether no optional name of a template is absent.
func (x *expansion) active(f *scope, t *template) (bool, error) {
	for _, n := range t.slots {
		if !f.entity.slots[n].optional {
			continue
		}
		_, ok, err := x.resolve(f, n)
		switch {
		case err == errPending: // it is not absent
		case err != nil || !ok:
			return false, err
		}
	}
	return true, nil
}

// countTexts returns how many texts a template expands to in a scope, or more than the limit if
// they are too many.
func (x *expansion) countTexts(f *scope, t *template) (int, error) {
	if len(t.slots) == 0 {
		return 1, nil
	}
	if on, err := x.active(f, t); err != nil {
		return 0, err
	} else if !on {
		x.dropped++
		return 0, nil
	}
	for _, n := range t.slots {
		_, _, err := x.resolve(f, n)
		if err == errPending && x.without {
			return 0, nil // and renderers make nothing of it
		}
		if err != nil {
			return 0, err
		}
	}
	return f.combinations(&t.choice, x.limits.KeysPerRow), nil
}

// combinations returns how many choices resolved slots leave, or more than the limit if they are
// too many.
func (f *scope) combinations(c *choice, limit int) int {
	total := 1
	for _, n := range c.axes {
		total = product(total, len(f.slots[n].list), limit)
	}
	return total
}

// bytes returns how many bytes the n texts of a measured template have together, before anything is
// escaped. It does not overflow: n is within limits.keys_per_row, and so is each value within
// limits.params.
func (f *scope) bytes(t *template, n int) int {
	if n == 0 {
		return 0
	}
	total := 0
	for i := range t.parts {
		if p := &t.parts[i]; p.slot == noSlot {
			total += n * len(p.text)
		} else {
			total += f.share(t.slots[p.slot], n)
		}
	}
	return total
}

// share returns how many bytes the values of a resolved slot have in n combinations of all values.
// N is not 0.
func (f *scope) share(slot, n int) int {
	list, sum := f.slots[slot].list, 0
	for _, v := range list {
		sum += len(v)
	}
	return n / len(list) * sum
}

// product returns a*b, or limit+1 if it is more than limit. It does not overflow.
func product(a, b, limit int) int {
	if b > 0 && a > limit/b {
		return limit + 1
	}
	return a * b
}

// eachScope calls visit with the scope of an entity, and then with those of all that it expands as,
// each before its own. A scope is another one's when visit has returned: a row may have a hundred
// thousand of them.
func (x *expansion) eachScope(e *entity, visit func(*scope) error) error {
	x.spent, x.dropped = spending{}, 0
	return x.step(x.newScope(e, x.row.ID), visit)
}

func (x *expansion) step(f *scope, visit func(*scope) error) error {
	e := f.entity
	defer func() { x.free = append(x.free, f) }()
	if err := x.spendScope(); err != nil {
		return err
	}
	if err := visit(f); err != nil {
		return err
	}
	for i := range e.as {
		ids, err := x.ids(f, &e.as[i])
		if err == errPending {
			x.planAhead(e.as[i].target, visit)
			continue
		}
		if err != nil {
			return err
		}
		for _, id := range ids {
			if err := x.step(x.newScope(e.as[i].target, id), visit); err != nil {
				return err
			}
		}
	}
	return nil
}

// planAhead visits an entity whose IDs are not known yet, once, for the questions that do not
// depend on them: they are asked with the others of their rank. Its cost and its errors count when
// the IDs are known, if there are any.
func (x *expansion) planAhead(e *entity, visit func(*scope) error) {
	all := x.asks
	if !e.asks || all.foreseen[e] {
		return
	}
	all.foreseen[e] = true
	outermost, spent := !all.ahead, x.spent
	all.ahead = true
	f := x.newScope(e, "")
	f.slots[idSlot] = value{state: pending}
	_ = x.step(f, visit)
	if outermost {
		all.ahead, x.spent = false, spent
	}
}

// newScope returns a scope in which only the ID is resolved.
func (x *expansion) newScope(e *entity, id string) *scope {
	f := &scope{}
	if n := len(x.free); n > 0 {
		f, x.free = x.free[n-1], x.free[:n-1]
	}
	f.entity = e
	own := f.id[:]
	own[0] = id
	if cap(f.slots) < len(e.slots) {
		f.slots = make([]value, len(e.slots))
	}
	f.slots = f.slots[:len(e.slots)]
	clear(f.slots)
	f.slots[idSlot] = value{list: own, state: present}
	return f
}

// ids returns the IDs with which a scope expands as another entity.
func (x *expansion) ids(f *scope, a *alias) ([]string, error) {
	n, err := x.countTexts(f, &a.id)
	if err != nil {
		return nil, err
	}
	if err := x.spendIDs(f, a, n); err != nil {
		return nil, err
	}
	ids := renderExact(make([]string, 0, n), f, &a.id)
	for _, id := range ids {
		if a.target.noID(id) {
			return nil, badParam(f.entity.slots[a.id.slots[0]].name, fmt.Errorf("%w: it is the id of %q", errEmptyID, a.target.name))
		}
	}
	return ids, nil
}
