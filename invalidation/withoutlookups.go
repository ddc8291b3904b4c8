package invalidation

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
