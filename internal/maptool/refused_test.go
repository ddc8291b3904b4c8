package maptool_test

import (
	"testing"

	"github.com/unstale/unstale/internal/maptool"
	"github.com/unstale/unstale/invalidation"
)

// A row is refused for the same reason as by a worker, even if that shows before its lookups.
func TestRefusedBeforeLookups(t *testing.T) {
	t.Parallel()
	m, err := invalidation.Parse("map.yaml", []byte(`
version: 1
params:
  a: {lookup: {by: [id], sql: "SELECT i, a FROM t WHERE i IN (?)"}}
  country: {with: [currency], lookup: {by: [id], sql: "SELECT i, c, d FROM t WHERE i IN (?)"}}
entities:
  e: {params: [a, country, currency], keys: ["a:{a}", "{country}:{currency}"]}
`), nil)
	if err != nil {
		t.Fatal(err)
	}
	cases, err := maptool.ReadCases([]byte(`
cases:
  - row: {entity: e, id: 1, params: {country: [DE, US], currency: [EUR, USD, CHF]}}
    lookups: {a: 7}
    refused: bad_parameter
`))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range maptool.RunCases(m, cases).Cases {
		for _, problem := range c.Problems {
			t.Error(problem)
		}
	}
}
