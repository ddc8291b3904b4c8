package cachetest

import (
	"fmt"

	"github.com/unstale/unstale/invalidation"
	"github.com/unstale/unstale/outbox"
	"github.com/unstale/unstale/protocol"
)

// Apply does what a worker with the map m does with rows after the commit: it invalidates their
// keys, tags, patterns and index sets, and sets the tombstones of hold. It ignores NotBefore and
// the repeats of the map.
//
//	store.Apply(m, shopcache.InvalidateProduct(42, shopcache.ProductParams{CategoryID: []int64{7}}))
//
// Lookups do not run: a row must give their values. A row that Enqueue or the worker refuses fails
// the test, and nothing is invalidated.
func (s *Store) Apply(m *invalidation.Map, rows ...outbox.Invalidation) {
	s.t.Helper()
	plans := make([]invalidation.Plan, len(rows))
	for i, row := range rows {
		var err error
		if plans[i], err = planOf(m, row); err != nil {
			s.t.Fatalf("cachetest: apply %s %s: %v", row.Entity, row.ID, err)
		}
	}
	for _, plan := range plans {
		s.apply(plan)
	}
}

// AddToSet adds keys to an index set of the map, as the SADD of an application does. Apply
// invalidates the members, and then the set is empty.
func (s *Store) AddToSet(set string, keys ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sets[set] = append(s.sets[set], keys...)
}

// apply sets the tombstones first, as a worker does.
func (s *Store) apply(plan invalidation.Plan) {
	s.t.Helper()
	members := s.hold(plan)
	s.Invalidate(plan.Keys...)
	for _, pattern := range plan.Patterns {
		s.InvalidatePattern(pattern)
	}
	s.Invalidate(members...)
}

// hold sets the tombstones of a plan, and takes the members of its index sets.
func (s *Store) hold(plan invalidation.Plan) (members []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range plan.Keys {
		if hold, ok := protocol.HoldKey(key); ok && plan.Hold > 0 {
			s.set(hold, "1", plan.Hold)
		}
	}
	for _, set := range plan.Sets {
		members = append(members, s.sets[set]...)
		delete(s.sets, set)
	}
	return members
}

// planOf expands a row. A lookup that adds to the values of the row adds nothing.
func planOf(m *invalidation.Map, inv outbox.Invalidation) (plan invalidation.Plan, err error) {
	text, err := inv.ParamsJSON()
	if err != nil {
		return plan, err
	}
	if most := m.Limits().ParamsBytes; len(text) > most {
		return plan, &invalidation.RowError{Reason: invalidation.ParamsTooLarge, Err: fmt.Errorf("%d bytes, limits.params is %d", len(text), most)}
	}
	row := invalidation.Row{Entity: inv.Entity, ID: inv.ID}
	if row.Params, err = invalidation.ParseParams(text); err != nil {
		return plan, err
	}
	answers := &invalidation.Answers{}
	for range m.Ranks() {
		needs, err := m.Needs(row, answers)
		if err != nil {
			return plan, err
		}
		for _, n := range needs {
			if _, given := row.Params.Get(n.Lookup.Param); given {
				answers.Put(n, nil)
			}
		}
	}
	return m.Expand(row, answers)
}
