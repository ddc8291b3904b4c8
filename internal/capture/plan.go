package capture

import (
	"slices"
	"strings"
)

// A State is the state of a trigger relative to the map.
type State string

// The states of triggers.
const (
	InPlace      State = "in place"
	Missing      State = "missing"
	Changed      State = "changed"       // the map, or the table, has changed since it was made
	Outdated     State = "outdated"      // an older version made it, with a defect
	WrongDefiner State = "wrong definer" // made for another account
	CutsValues   State = "cuts values"   // created in a mode that truncates values
	RenamedAway  State = "renamed away"  // its table has another name now
	NotInMap     State = "not in the map"
	Duplicate    State = "duplicate" // another trigger on the same table does the same
	Unknown      State = "unknown"   // the account cannot see it
)

// A Change is a trigger with its state, and the action that it needs.
type Change struct {
	State  State
	Want   *Trigger  // nil: none
	Create string    // the name of the trigger to create, or ""
	Have   *Existing // nil: none. Dropped, unless it is in place
}

// Table returns the table of the trigger.
func (c Change) Table() string {
	if c.Have != nil {
		return c.Have.Table
	}
	return c.Want.Table
}

// Event returns the event of the trigger, for example AFTER UPDATE.
func (c Change) Event() string {
	if c.Have != nil {
		return c.Have.Timing + " " + c.Have.Event
	}
	return c.Want.Timing + " " + c.Want.Event
}

// compare returns the changes that leave exactly the wanted triggers, in the order of wanted.
// hidden are the tables whose triggers cannot be seen.
func compare(wanted []Trigger, existing []Existing, definer Account, hidden map[string]bool) (all []Change) {
	left := slices.Clone(existing)
	take := func(fits func(Existing) bool) *Existing {
		i := slices.IndexFunc(left, fits)
		if i < 0 {
			return nil
		}
		e := left[i]
		left = slices.Delete(left, i, i+1)
		return &e
	}
	all = make([]Change, len(wanted))
	// first the existing ones: none of them must count as changed
	for i := range wanted {
		w := &wanted[i]
		all[i] = Change{State: Missing, Want: w, Have: take(func(e Existing) bool {
			return w.is(e) && definer.is(e.Definer) && e.isStrict()
		})}
		if all[i].Have != nil {
			all[i].State = InPlace
		}
	}
	for i := range all {
		c := &all[i]
		if c.State == InPlace {
			continue
		}
		c.Have = take(func(e Existing) bool {
			return e.Table == c.Want.Table && e.Timing == c.Want.Timing && e.Event == c.Want.Event
		})
		switch {
		case c.Have == nil && hidden[c.Want.Table]:
			c.State = Unknown
			continue
		case c.Have == nil:
		case !c.Want.is(*c.Have) && c.Want.older().Body == c.Have.older().Body:
			c.State = Outdated
		case !c.Want.is(*c.Have):
			c.State = Changed
		case !definer.is(c.Have.Definer):
			c.State = WrongDefiner
		default:
			c.State = CutsValues
		}
		c.Create = freeName(*c.Want, existing, all)
	}
	for _, e := range left {
		state := NotInMap
		switch {
		case slices.ContainsFunc(wanted, func(w Trigger) bool {
			return w.Table == e.Table && w.Timing == e.Timing && w.Event == e.Event
		}):
			state = Duplicate
		case slices.ContainsFunc(wanted, func(w Trigger) bool {
			return w.Table != e.Table && (strings.HasPrefix(e.Name, w.Name(1)) || strings.HasPrefix(e.Name, w.older().Name(1)))
		}):
			state = RenamedAway
		}
		all = append(all, Change{State: state, Have: &e})
	}
	return all
}

// is reports whether e is the same trigger.
func (t *Trigger) is(e Existing) bool {
	return e.Table == t.Table && e.Timing == t.Timing && e.Event == t.Event && e.Body == t.Body
}

// freeName returns a name that no trigger has, including the triggers that will be dropped: the new
// one is created first.
func freeName(t Trigger, existing []Existing, planned []Change) string {
	for n := 1; ; n++ {
		name := t.Name(n)
		if !slices.ContainsFunc(existing, func(e Existing) bool { return e.Name == name }) &&
			!slices.ContainsFunc(planned, func(c Change) bool { return c.Create == name }) {
			return name
		}
	}
}
