package invalidation

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// Expand returns what row invalidates. Answers hold what the lookups named by Needs found; nil is
// as good as none. The error is a *RowError: unknown_entity, missing_parameter (also for a lookup
// without an answer), bad_parameter, too_many_keys or pattern_too_wide. Nothing is built of a row
// that would expand to more than limits.keys_per_row, to more than 8 MiB, or as other entities
// whose ids have more than that.
func (m *Map) Expand(row Row, answers *Answers) (Plan, error) {
	e, err := entityOf(m.entities, &row)
	if err != nil {
		return Plan{}, err
	}
	switch e {
	case patternEntity:
		return expandPattern(m, row)
	case keyEntity:
		if err := refusePrivate(row.ID); err != nil {
			return Plan{}, err
		}
	}
	if len(e.as) > 0 {
		return expandAll(&m.limits, e, row, answers)
	}
	// The plain case costs no allocation beyond the plan itself.
	x := expansion{limits: &m.limits, row: &row, answers: answers}
	id := [1]string{row.ID}
	slotBuf := [inlineSlots]value{idSlot: {list: id[:], state: present}}
	f := scope{entity: e, slots: slotBuf[:]}
	if len(e.slots) > len(slotBuf) {
		f.slots = make([]value, len(e.slots))
		f.slots[idSlot] = value{list: []string{row.ID}, state: present}
	}
	var size planSize
	if err := x.measure(&f, &size); err != nil {
		return Plan{}, err
	}
	plan := size.newPlan()
	plan.Repeat, plan.Hold, plan.Dropped = e.repeat, e.hold, x.dropped
	if err := x.build(&f, &plan); err != nil {
		return Plan{}, err
	}
	plan.deduplicate()
	return plan, nil
}

// entityOf returns the entity of row, whose id may be empty only if it is captured, and whose declared parameters must
// not be nested.
func entityOf(entities map[string]*entity, row *Row) (*entity, error) {
	e := entities[row.Entity]
	if e == nil {
		return nil, &RowError{Reason: UnknownEntity, Err: fmt.Errorf("the map has no entity %q", row.Entity)}
	}
	if e.noID(row.ID) {
		return nil, badParam(idName, errEmptyID)
	}
	if e.intID && IsFloat(row.ID) {
		return nil, badParam(idName, fmt.Errorf(floatText, row.ID))
	}
	for i := range row.Params {
		if p := &row.Params[i]; p.Err() != nil && e.declares(p.Name) {
			return nil, badParam(p.Name, p.Err())
		}
	}
	return e, nil
}

// expandAll expands a row in its own entity and in all that it expands as. Here row escapes to the
// heap.
func expandAll(limits *Limits, e *entity, row Row, answers *Answers) (Plan, error) {
	x := expansion{limits: limits, row: &row, answers: answers}
	return e.expandScopes(&x)
}

func (e *entity) expandScopes(x *expansion) (Plan, error) {
	var size planSize
	if err := x.eachScope(e, func(f *scope) error { return x.measure(f, &size) }); err != nil {
		return Plan{}, err
	}
	plan := size.newPlan()
	err := x.eachScope(e, func(f *scope) error {
		if err := x.measure(f, &planSize{}); err != nil { // resolves what build reads
			return err
		}
		plan.delay(f.entity)
		return x.build(f, &plan)
	})
	if err != nil {
		return Plan{}, err
	}
	plan.Dropped = x.dropped
	plan.deduplicate()
	return plan, nil
}

// planSize counts what a plan will hold, before duplicates are removed.
type planSize struct{ keys, patterns, sets, bytes int }

func (s *planSize) newPlan() (p Plan) {
	if s.keys > 0 {
		p.Keys = make([]string, 0, s.keys)
	}
	if s.patterns > 0 {
		p.Patterns = make([]string, 0, s.patterns)
	}
	if s.sets > 0 {
		p.Sets = make([]string, 0, s.sets)
	}
	return p
}

// measure resolves what the templates of a scope use and adds up what they expand to.
func (x *expansion) measure(f *scope, size *planSize) error {
	if err := x.measureList(f, f.entity.keys, &size.keys, size); err != nil {
		return err
	}
	if err := x.measureList(f, f.entity.patterns, &size.patterns, size); err != nil {
		return err
	}
	return x.measureList(f, f.entity.sets, &size.sets, size)
}

func (x *expansion) measureList(f *scope, list []template, into *int, size *planSize) error {
	for i := range list {
		n, err := x.countTexts(f, &list[i])
		if err != nil {
			return err
		}
		if *into += n; size.keys+size.patterns+size.sets > x.limits.KeysPerRow {
			return x.tooMany("the row expands to more than %d keys")
		}
		if size.bytes += f.bytes(&list[i], n); size.bytes > maxRowBytes {
			return tooLong("the keys of the row", maxRowBytes)
		}
	}
	return nil
}

// build appends what the templates of a measured scope expand to.
func (x *expansion) build(f *scope, plan *Plan) (err error) {
	for i := range f.entity.keys {
		plan.Keys = renderExact(plan.Keys, f, &f.entity.keys[i])
	}
	for i := range f.entity.patterns {
		if plan.Patterns, err = renderPatterns(plan.Patterns, f, &f.entity.patterns[i], x.limits.PatternPrefix); err != nil {
			return err
		}
	}
	for i := range f.entity.sets {
		plan.Sets = renderExact(plan.Sets, f, &f.entity.sets[i])
	}
	return nil
}

// delay merges the delays of an entity into the plan.
func (p *Plan) delay(e *entity) {
	p.Hold = max(p.Hold, e.hold)
	if len(p.Repeat) == 0 {
		p.Repeat = e.repeat
		return
	}
	for _, d := range e.repeat {
		if at, known := slices.BinarySearch(p.Repeat, d); !known {
			p.Repeat = slices.Insert(slices.Clip(p.Repeat), at, d)
		}
	}
}

func (p *Plan) deduplicate() {
	p.Keys = deduplicate(p.Keys)
	p.Patterns = deduplicate(p.Patterns)
	p.Sets = deduplicate(p.Sets)
}

// fewEntries is up to where comparing each with each is faster than a map.
const fewEntries = 16

// deduplicate keeps the first of equal entries, in place.
func deduplicate(list []string) []string {
	if len(list) < 2 {
		return list
	}
	kept := list[:0]
	if len(list) <= fewEntries {
		for _, s := range list {
			if !slices.Contains(kept, s) {
				kept = append(kept, s)
			}
		}
		return kept
	}
	seen := make(map[string]struct{}, len(list))
	for _, s := range list {
		if _, twice := seen[s]; !twice {
			seen[s] = struct{}{}
			kept = append(kept, s)
		}
	}
	return kept
}

// A Plan is the set of names that one row invalidates. Do not modify it: it may share memory with
// the Map.
type Plan struct {
	// Keys are exact keys, including the keys of tag versions.
	Keys []string
	// Patterns are globs: only * and ? are special, a backslash takes the meaning from the
	// character after it.
	Patterns []string
	// Sets are index sets: keys of Redis sets whose members are cache keys.
	Sets []string
	// Repeat are the delays after which to apply the row again, in ascending order.
	Repeat []time.Duration
	// Hold is how long to refuse fills of the keys; zero means not at all.
	Hold time.Duration
	// Dropped is how many templates make nothing, since the row lacks an optional name that they
	// use. It counts those of each entity that the row expands as, once for each ID, including
	// those of as. [Map.FirstDropped] names one.
	Dropped int
}

// Len returns how many keys, patterns and sets the plan has together.
func (p *Plan) Len() int { return len(p.Keys) + len(p.Patterns) + len(p.Sets) }

// ExpandWithoutLookups returns the part of the plan of row that needs no lookup, for a row whose
// lookup failed. It leaves out each template, and each entity of as, with a value that a lookup
// finds or adds to. A value that the row gives instead of a lookup counts as given. An optional
// name that only a lookup could give is unknown, not absent. Repeat is empty, and the limits are
// those of Expand. The error is a *RowError, as from Expand.
func (m *Map) ExpandWithoutLookups(row Row) (Plan, error) {
	e, err := entityOf(m.entities, &row)
	if err != nil {
		return Plan{}, err
	}
	x := expansion{limits: &m.limits, row: &row, without: true}
	plan, err := e.expandScopes(&x)
	plan.Repeat = nil
	return plan, err
}

// An Expanded is the result of one template for a row.
type Expanded struct {
	MapName
	// Names are keys, patterns or sets, in the order of the values.
	Names []string
}

// ExpandByTemplate expands a row like Expand, and returns the result of each template, including
// templates that make nothing of the row. It costs several times as much. The error is that of
// Expand.
func (m *Map) ExpandByTemplate(row Row, answers *Answers) ([]Expanded, error) {
	if _, err := m.Expand(row, answers); err != nil {
		return nil, err
	}
	x := expansion{limits: &m.limits, row: &row, answers: answers}
	var all []Expanded
	err := x.eachScope(m.entities[row.Entity], func(f *scope) (err error) {
		if err := x.measure(f, &planSize{}); err != nil { // resolves what is rendered
			return err
		}
		for kind, t := range f.entity.kinds() {
			made := Expanded{MapName: f.entity.mapName(kind, t)}
			if kind != KindPattern {
				made.Names = renderExact(nil, f, t)
			} else if made.Names, err = renderPatterns(nil, f, t, m.limits.PatternPrefix); err != nil {
				return err
			}
			all = append(all, made)
		}
		return nil
	})
	return all, err
}

// A Dropped is a template that makes nothing of a row, since the row does not give an optional name
// that the template uses.
type Dropped struct {
	Entity string // that has the template: the row's, or one as which it expands
	Text   string // the template, as written
	Param  string // the name
}

// FirstDropped returns the first of the templates that Plan.Dropped counts, and false if there is
// none, or if Expand refuses the row before it reaches one. It costs several times as much as
// Expand.
func (m *Map) FirstDropped(row Row, answers *Answers) (first Dropped, found bool) {
	e, err := entityOf(m.entities, &row)
	if err != nil {
		return first, false
	}
	x := expansion{limits: &m.limits, row: &row, answers: answers}
	stop := errors.New("found")
	_ = x.eachScope(e, func(f *scope) error {
		for t := range f.entity.templates() {
			if name := x.absentName(f, t); name != "" {
				first, found = Dropped{f.entity.name, t.source, name}, true
				return stop
			}
		}
		return nil
	})
	return first, found
}

// absentName returns the first optional name of a template that the row does not give, or "".
func (x *expansion) absentName(f *scope, t *template) string {
	for _, n := range t.slots {
		s := &f.entity.slots[n]
		if !s.optional {
			continue
		}
		if _, given, _ := x.resolve(f, n); !given {
			return s.name
		}
	}
	return ""
}
