package invalidation_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/unstale/unstale/invalidation"
)

const failedLookupMap = `
version: 1
limits: {keys_per_row: 6}
params:
  category: {lookup: {by: [id], sql: "SELECT product, category FROM c WHERE product IN (?)"}}
  parent: {lookup: {by: [category], sql: "SELECT category, parent FROM p WHERE category IN (?)"}}
  shop: {lookup: {by: [id], sql: "SELECT product, shop, lang FROM s WHERE product IN (?)"}, with: [lang]}
  extra: {lookup: {by: [id], sql: "SELECT product, extra FROM e WHERE product IN (?)", always: true}}
  size: {optional: true}
  maybe: {optional: true, lookup: {by: [maybe], sql: "SELECT a, b FROM m WHERE a IN (?)", always: true}}
entities:
  product:
    params: [category, parent, shop, lang, extra, size, maybe]
    keys: ["p:{id}", "p:{id}:{size}", "p:{id}:{category}", "p:{id}:{shop}:{lang}", "p:{id}:{extra}", "p:{id}:{maybe}"]
    patterns: ["list:pages:{parent}:*", "list:all:*"]
    sets: ["set:{id}", "set:{category}"]
    as: {shelf: "{category}", shop: "{id}"}
    hold: 2s
    repeat: [1s]
  shelf: {keys: ["shelf:{id}"]}
  shop: {params: [category], keys: ["shop:{id}", "shop:{id}:{category}"], hold: 3s, repeat: [2s]}
`

// The part without lookups expands as in the whole plan. A failed lookup is neither an empty list
// nor an absent optional name: its values make nothing.
func TestExpandWithoutLookups(t *testing.T) {
	t.Parallel()
	m, err := invalidation.Parse("map.yaml", []byte(failedLookupMap), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ params, want string }{
		{`{}`, "p:7 shop:7 list:all:* set:7"},
		{`{"size": "xl"}`, "p:7 p:7:xl shop:7 list:all:* set:7"},
		{`{"extra": "e", "maybe": "m"}`, "p:7 shop:7 list:all:* set:7"},
		{`{"category": [1]}`, "p:7 p:7:1 shop:7 shop:7:1 shelf:1 list:all:* set:7 set:1"},
		{`{"category": []}`, "p:7 shop:7 list:all:* set:7"},
		{`{"shop": "s", "lang": "l"}`, "p:7 p:7:s:l shop:7 list:all:* set:7"},
	} {
		m.SetKeysPerRow(20)
		given, err := invalidation.ParseParams([]byte(c.params))
		if err != nil {
			t.Fatal(err)
		}
		row := invalidation.Row{Entity: "product", ID: "7", Params: given}
		plan, err := m.ExpandWithoutLookups(row)
		if err != nil {
			t.Fatal(c.params, err)
		}
		got := slices.Concat(plan.Keys, plan.Patterns, plan.Sets)
		want := strings.Fields(c.want)
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) || plan.Hold != 3e9 || plan.Repeat != nil {
			t.Errorf("%s: %v, held for %s, repeated %v; wanted %v", c.params, got, plan.Hold, plan.Repeat, want)
		}
		if needs, err := m.Needs(row, nil); err != nil || len(needs) == 0 {
			t.Errorf("%s: needs %v, %v", c.params, needs, err)
		}
		m.SetKeysPerRow(3)
		var fault *invalidation.RowError
		if _, err := m.ExpandWithoutLookups(row); !errors.As(err, &fault) || fault.Reason != invalidation.TooManyKeys {
			t.Errorf("%s: beyond the limit: %v", c.params, err)
		}
	}
	if _, err := m.ExpandWithoutLookups(invalidation.Row{Entity: "none", ID: "7"}); err == nil {
		t.Error("an unknown entity is expanded")
	}
}
