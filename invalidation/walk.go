package invalidation

import "fmt"

// walk calls visit with the scope of an entity, and then with those of all that it expands as, each before its own. A
// scope is another one's when visit has returned: a row may have a hundred thousand of them.
func (x *expansion) walk(e *entity, visit func(*scope) error) error {
	x.spent, x.dropped = spending{}, 0
	return x.step(e, x.row.ID, visit)
}

func (x *expansion) step(e *entity, id string, visit func(*scope) error) error {
	if err := x.spendScope(); err != nil {
		return err
	}
	f := x.take(e, id)
	defer func() { x.free = append(x.free, f) }()
	if err := visit(f); err != nil {
		return err
	}
	for i := range e.as {
		ids, err := x.ids(f, &e.as[i])
		if err == errPending { // a later round of questions comes to it
			continue
		}
		if err != nil {
			return err
		}
		for _, id := range ids {
			if err := x.step(e.as[i].target, id, visit); err != nil {
				return err
			}
		}
	}
	return nil
}

// take returns a scope in which nothing is resolved but the id.
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

// ids returns the ids with which a scope expands as another entity.
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
		if id == "" {
			return nil, badParam(f.entity.slots[a.id.slots[0]].name, fmt.Errorf("%w: it is the id of %q", errEmptyID, a.target.name))
		}
	}
	return ids, nil
}
