package invalidation_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/unstale/unstale/invalidation"
)

// A lookup of an entity whose ID is looked up runs after that lookup, even if it is asked by what
// the row gives, and if an entity between them is reached with a given ID.
func TestLookupsBehindALookedUpID(t *testing.T) {
	t.Parallel()
	const src = `
version: 1
params:
  product_id: {lookup: {by: [id], sql: "SELECT id, product_id FROM reviews WHERE id IN (?)"}}
  listed_in: {lookup: {by: [category_id], sql: "SELECT id, above FROM trees WHERE id IN (?)"}}
  shop_id: {lookup: {by: [id], sql: "SELECT id, shop_id FROM brands WHERE id IN (?)"}}
entities:
  review: {params: [product_id], as: {product: "{product_id}"}}
  product: {params: [category_id, listed_in, brand_id], keys: ["list:{listed_in}"], as: {brand: "{brand_id}"}}
  brand: {params: [shop_id], keys: ["shop:{shop_id}"]}
`
	m := mustParse(t, src)
	row := invalidation.Row{Entity: "review", ID: "1", Params: invalidation.Params{{Name: "category_id", Values: []string{"7"}}, {Name: "brand_id", Values: []string{"8"}}}}
	var answers invalidation.Answers
	for rank := range m.Ranks() {
		needs, err := m.Needs(row, &answers)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range needs {
			if n.Lookup.Rank < rank {
				t.Errorf("the lookup of %s has rank %d and is asked in round %d", n.Lookup.Param, n.Lookup.Rank, rank)
			} else if n.Lookup.Rank == rank {
				answers.Put(n, []string{"9"})
			}
		}
	}
	if plan, err := m.Expand(row, &answers); err != nil || strings.Join(plan.Keys, " ") != "list:9 shop:9" {
		t.Errorf("%q, %v", plan.Keys, err)
	}
}

// Optional names hide no error in the values of the row.
func TestOptionalNamesHideNoFault(t *testing.T) {
	t.Parallel()
	m := mustParse(t, `
version: 1
params:
  zone: {optional: true, with: [area]}
  group_id: {optional: true, lookup: {by: [group_id], always: true, sql: "SELECT id, above FROM g WHERE id IN (?)"}}
entities:
  a: {params: [zone, area], keys: ["{zone}:{area}"]}
  b: {params: [zone, area], keys: ["{area}:{zone}"]}
  c: {params: [group_id], keys: ["{group_id}"]}
`)
	two, three := listParam("zone", "x", "y"), listParam("area", "1", "2", "3")
	for _, entity := range []string{"a", "b"} {
		plan, err := m.Expand(invalidation.Row{Entity: entity, ID: "1", Params: invalidation.Params{two, three}}, nil)
		if fault := (*invalidation.RowError)(nil); !errors.As(err, &fault) || fault.Reason != invalidation.BadParameter {
			t.Errorf("%s: %q, %v", entity, plan.Keys, err)
		}
	}
	if plan, err := m.Expand(invalidation.Row{Entity: "c", ID: "1", Params: invalidation.Params{listParam("group_id", "1")}}, nil); !errors.Is(err, invalidation.ErrNotRun) {
		t.Errorf("%q, %v", plan.Keys, err)
	}
	// More questions than a row may ask: 4 MiB.
	long := strings.Repeat("x", 5<<20)
	if needs, err := m.Needs(invalidation.Row{Entity: "c", ID: "1", Params: invalidation.Params{listParam("group_id", long)}}, nil); err == nil {
		t.Errorf("%d needs, and no fault", len(needs))
	}
}

// Every declaration must be used, and a lookup cannot be asked by a value that may be absent.
func TestGrammarRefuses(t *testing.T) {
	t.Parallel()
	for name, src := range map[string]string{
		"a name in with that no entity has":         `{version: 1, params: {country: {with: [curency]}}, entities: {e: {params: [country, currency], keys: ["{country}:{currency}"]}}}`,
		"a name in with that is an enumeration":     `{version: 1, each: {currency: [EUR]}, params: {country: {with: [currency]}}, entities: {e: {params: [country], keys: ["{country}:{currency}"]}}}`,
		"by what goes along with an optional param": `{version: 1, params: {a: {optional: true, with: [b]}, c: {lookup: {by: [b], sql: "SELECT a, b FROM t WHERE a IN (?)"}}}, entities: {e: {params: [a, b, c], keys: ["{c}"]}}}`,
		"the same value twice in a long default":    `{version: 1, params: {a: {default: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 21]}}, entities: {e: {params: [a], keys: ["{a}"]}}}`,
		"more by default than a row may make":       `{version: 1, limits: {keys_per_row: 2}, params: {a: {default: [1, 2, 3]}}, entities: {e: {params: [a], keys: ["{a}"]}}}`,
		"an empty default in a pattern":             `{version: 1, params: {a: {default: ""}}, entities: {e: {params: [a], patterns: ["shop:longer:{a}:*"]}}}`,
		"an own lookup that its entity never asks":  `{version: 1, entities: {e: {params: [a], lookups: {a: {by: [id], sql: "SELECT a, b FROM t WHERE a IN (?)"}}, as: {f: "{id}"}}, f: {params: [a], keys: ["{a}"]}}}`,
	} {
		if _, err := invalidation.Parse("map.yaml", []byte(src), nil); err == nil {
			t.Errorf("%s: not refused", name)
		}
	}
	_, err := invalidation.Parse("map.yaml", []byte(`{version: 1, entities: {e: {lookups: {id: {by: [id], sql: "SELECT a, b FROM t WHERE a IN (?)"}}, keys: ["{id}"]}}}`), nil)
	if strings.Contains(fmt.Sprint(err), "add id to its params") { // which would be refused too
		t.Error(err)
	}
	_, err = invalidation.Parse("map.yaml", []byte(`{version: 1, params: {a: {lookup: {by: [page], sql: "SELECT a, b FROM t WHERE a IN (?)"}}}, entities: {e: {params: [a], each: {page: 1..2}, keys: ["{a}:{page}"]}}}`), nil)
	if strings.Contains(fmt.Sprint(err), "add page to the params") { // which would be refused too
		t.Error(err)
	}
}

// Values that a lookup adds to a long list are not copied for each entity that the row expands as.
// Not parallel, since allocations are counted.
func TestAddedValuesAreBounded(t *testing.T) {
	m := mustParse(t, `
version: 1
params: {tag: {lookup: {by: [id], always: true, sql: "SELECT id, tag FROM tags WHERE id IN (?)"}}}
entities:
  x: {params: [n], as: {y: "{n}"}}
  y: {params: [m], as: {z: "{m}"}}
  z: {params: [tag], keys: ["{tag}"]}
`)
	// 57 KiB
	row := invalidation.Row{Entity: "x", ID: "1", Params: invalidation.Params{{Name: "n", Values: thousands(100)}, {Name: "m", Values: thousands(100)}, {Name: "tag", Values: thousands(8000)}}}
	var answers invalidation.Answers
	needs, err := m.Needs(row, &answers)
	if err != nil {
		return
	}
	for _, n := range needs {
		answers.Put(n, []string{"5"})
	}
	if bytes, err := heap(func() error { _, err := m.Needs(row, &answers); return err }); bytes > 64<<20 {
		t.Errorf("%d MiB, %v", bytes>>20, err)
	}
}

// One value that goes with all of a list is not copied as often before the row is refused. Not
// parallel, as allocations are counted.
func TestValuesThatGoWithAllAreBounded(t *testing.T) {
	m := mustParse(t, `
version: 1
limits: {params: 2MiB}
params: {a: {with: [b, c, d, e, f]}}
entities: {e: {params: [a, b, c, d, e, f], keys: ["{a}{b}{c}{d}{e}{f}"]}}
`)
	row := invalidation.Row{Entity: "e", ID: "1", Params: invalidation.Params{{Name: "a", Values: thousands(1 << 20)}}}
	for _, name := range []string{"b", "c", "d", "e", "f"} {
		row.Params = append(row.Params, invalidation.Param{Name: name, Values: []string{"x"}})
	}
	if bytes, err := heap(func() error { _, err := m.Expand(row, nil); return err }); err == nil || bytes > 1<<20 {
		t.Errorf("%d MiB before %v", bytes>>20, err)
	}
}

// A null in a list of values that go together does not move those behind it to others.
func TestNullAmongValuesThatGoTogether(t *testing.T) {
	t.Parallel()
	m := mustParse(t, `{version: 1, params: {country: {with: [currency]}}, entities: {e: {params: [country, currency], keys: ["{country}:{currency}"]}}}`)
	given, err := invalidation.ParseParams([]byte(`{"country": ["DE", null, "US"], "currency": ["EUR", "GBP", null]}`))
	if err != nil {
		t.Fatal(err)
	}
	if plan, err := m.Expand(invalidation.Row{Entity: "e", ID: "1", Params: given}, nil); err == nil && strings.Contains(strings.Join(plan.Keys, " "), "US:GBP") {
		t.Errorf("%q", plan.Keys)
	}
}

// An entity asks a question that does not depend on its ID once, regardless of how it is reached.
func TestQuestionsOfManyWays(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString(lookupHead + "  x: {params: [p], as: {e60: \"{p}\"}}\n  e0: {params: [p, q], lookups: {p: {by: [q], sql: \"SELECT a, b FROM t WHERE a IN (?)\"}}, keys: [\"{p}\"]}\n")
	for i := 1; i <= 60; i++ {
		fmt.Fprintf(&b, "  e%d: {as: {e%d: \"{id}\", f%d: \"{id}\"}}\n  f%d: {as: {e%d: \"{id}\"}}\n", i, i-1, i, i, i-1)
	}
	m := mustParse(t, b.String())
	needs, err := m.Needs(invalidation.Row{Entity: "x", ID: "1", Params: invalidation.Params{listParam("q", "2", "3")}}, nil)
	if err != nil || len(needs) != 3 || m.Ranks() != 1 {
		t.Errorf("%d ranks, %v, %v", m.Ranks(), needs, err)
	}
}
