package invalidation

import "fmt"

// walk calls visit with the scope of an entity, and then with those of all that it expands as, each
// before its own. A scope is another one's when visit has returned: a row may have a hundred
// thousand of them.
func (x *expansion) walk(e *entity, visit func(*scope) error) error {
	x.spent, x.dropped = spending{}, 0
	return x.step(x.take(e, x.row.ID), visit)
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
			x.foresee(e.as[i].target, visit)
			continue
		}
		if err != nil {
			return err
		}
		for _, id := range ids {
			if err := x.step(x.take(e.as[i].target, id), visit); err != nil {
				return err
			}
		}
	}
	return nil
}

// foresee visits an entity whose IDs are not known yet, once, for the questions that do not depend
// on them: they are asked with the others of their rank. Its cost and its errors count when the IDs
// are known, if there are any.
func (x *expansion) foresee(e *entity, visit func(*scope) error) {
	all := x.asks
	if !e.asks || all.foreseen[e] {
		return
	}
	all.foreseen[e] = true
	outermost, spent := !all.ahead, x.spent
	all.ahead = true
	f := x.take(e, "")
	f.slots[idSlot] = value{state: pending}
	_ = x.step(f, visit)
	if outermost {
		all.ahead, x.spent = false, spent
	}
}

// take returns a scope in which only the ID is resolved.
func (x *expansion) take(e *entity, id string) *scope {
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
	n, err := x.count(f, &a.id)
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
