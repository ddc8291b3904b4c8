package console

import (
	"net/url"
	"slices"
	"strings"

	"github.com/unstale/unstale/internal/near"
	"github.com/unstale/unstale/internal/output"
	"github.com/unstale/unstale/invalidation"
)

// An explanation lists the keys that a row would invalidate by the running map, without lookups.
type explanation struct {
	Entity, ID, Params string
	Err                string
	Plan               invalidation.Plan
	Missing            []string // names that workers look up; templates with them are left out
	Ignored            []string // parameters that the map does not declare
}

// longestParams is the most bytes of parameters.
const longestParams = 64 << 10

// explain expands the row of a URL, or returns nil if it has none.
func explain(m *invalidation.Map, values url.Values) *explanation {
	x := &explanation{Entity: values.Get("entity"), ID: values.Get("id"), Params: strings.TrimSpace(values.Get("params"))}
	if x.Entity == "" || m == nil || len(x.Params) > longestParams {
		return nil
	}
	row := invalidation.Row{Entity: x.Entity, ID: x.ID}
	if _, known := m.Describe(x.Entity); !known {
		x.Err = "the map has no entity " + output.Data(x.Entity) + "; " + near.DidYouMean(x.Entity, m.Entities(), "it has "+strings.Join(m.Entities(), ", "))
		return x
	}
	var err error
	if x.Params != "" {
		if row.Params, err = invalidation.ParseParams([]byte(x.Params)); err != nil {
			x.Err = err.Error()
			return x
		}
	}
	if x.Plan, err = m.Expand(row, nil); err != nil {
		needs, _ := m.Needs(row, nil)
		for _, n := range needs {
			x.Missing = append(x.Missing, n.Lookup.Param)
		}
		if len(x.Missing) > 0 {
			slices.Sort(x.Missing)
			x.Plan, err = m.ExpandWithoutLookups(row)
		}
	}
	if err != nil {
		x.Err = err.Error()
	}
	x.Ignored = m.Undeclared(row)
	return x
}

// Nothing reports whether the row reaches no key.
func (x *explanation) Nothing() bool {
	return len(x.Plan.Keys)+len(x.Plan.Patterns)+len(x.Plan.Sets) == 0
}
