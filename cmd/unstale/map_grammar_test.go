package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

const grammarMap = `version: 1
vars: {locales: [en, de]}
params:
  product_id: {lookup: {by: [id], sql: "SELECT id, product_id FROM reviews WHERE id IN (?)"}}
  category_id: {lookup: {by: [id], always: true, sql: "SELECT product_id, category_id FROM listed WHERE product_id IN (?)"}}
  country: {with: [currency], lookup: {by: [id], sql: "SELECT id, country, currency FROM shops WHERE id IN (?)"}}
  size: {default: [s, m]}
  tag: {optional: true, lookup: {by: [tag], always: true, sql: "SELECT tag, above FROM tags WHERE tag IN (?)"}}
  region: {with: [zone], optional: true}
entities:
  review: {params: [product_id], as: {product: "{product_id}"}}
  product: {params: [category_id, size, tag], keys: ["p:{id}:{locales}", "c:{category_id}", "s:{size}", "t:{tag}"]}
  price: {params: [country, currency, region, zone], keys: ["price:{country}:{currency}", "r:{region}:{zone}"]}
`

// The output of explain for an entity names the origin of each value.
func TestMapExplainSources(t *testing.T) {
	t.Parallel()
	file := writeFile(t, grammarMap)
	for entity, want := range map[string]string{
		"product": `{locales}      each of en, de
{category_id}  from the row, and looked up by id: SELECT product_id, category_id FROM listed WHERE product_id IN (?)
{size}         from the row, or by default s, m
{tag}          from the row, and looked up by tag: SELECT tag, above FROM tags WHERE tag IN (?); without it, what uses it makes nothing
`,
		"price": `{country}   from the row, or looked up by id, value by value with {currency}: SELECT id, country, currency FROM shops WHERE id IN (?)
{currency}  from the row, or looked up by id, value by value with {country}: SELECT id, country, currency FROM shops WHERE id IN (?)
{region}    from the row, value by value with {zone}; without it, what uses it makes nothing
{zone}      from the row, value by value with {region}; without it, what uses it makes nothing
`,
	} {
		if r := call(t, nil, "map", "explain", "--map", file, "--entity", entity); r.code != exitDone || !strings.HasSuffix(r.out, want) {
			t.Errorf("%+v\nwanted\n%s", r, want)
		}
	}
	var object description
	r := call(t, nil, "map", "explain", "--map", file, "--entity", "product", "--json")
	if err := json.Unmarshal([]byte(r.out), &object); err != nil || !object.Names[2].Always || !slices.Equal(object.Names[3].Default, []string{"s", "m"}) {
		t.Errorf("%v: %+v", err, r)
	}
}

// A row need not give a value that a lookup can find, including the ID of as, or one with a
// default.
func TestMapWhoNeedNotGive(t *testing.T) {
	t.Parallel()
	file := writeFile(t, grammarMap)
	for key, want := range map[string]string{
		"p:7:de":       "product  id=7                               key p:{id}:{locales}\nreview   product_id=7 (given or looked up)  key p:{id}:{locales}, as product\n",
		"s:m":          "product  size=m (given or by default)  key s:{size}\nreview   size=m (given or by default)  key s:{size}, as product\n",
		"s:xl":         "product  size=xl  key s:{size}\nreview   size=xl  key s:{size}, as product\n",
		"price:DE:EUR": "price  country=DE (given or looked up) currency=EUR (given or looked up)  key price:{country}:{currency}\n",
		"r:north:N1":   "price  region=north zone=N1  key r:{region}:{zone}\n",
		"c:7":          "product  category_id=7 (given or looked up)  key c:{category_id}\nreview   category_id=7 (given or looked up)  key c:{category_id}, as product\n",
	} {
		if r := call(t, nil, "map", "who", "--map", file, key); r.code != exitDone || r.out != want {
			t.Errorf("%+v\nwanted\n%s", r, want)
		}
	}
}

// Lookups of a case may follow each other, and find values that go together.
func TestMapTestOfLookups(t *testing.T) {
	t.Parallel()
	file := writeFile(t, grammarMap)
	cases := writeFile(t, `cases:
  - row: {entity: review, id: 1, params: {category_id: 9}}
    lookups: {product_id: 7, category_id: [9, 8]}
    reaches: ["p:7:en", "p:7:de", "c:8", "c:9", "s:m"]
    spares: ["p:1:en", "t:"]
  - row: {entity: price, id: 1}
    lookups: {country: [DE, US], currency: [EUR, USD]}
    reaches: ["price:DE:EUR", "price:US:USD"]
    spares: ["price:DE:USD"]
  - row: {entity: price, id: 1}
    lookups: {country: [DE, US], currency: EUR}
    reaches: "price:DE:EUR"
  - row: {entity: price, id: 1}
    lookups: {country: [DE, US]}
    reaches: "price:DE:EUR"
  - row: {entity: price, id: 1, params: {country: [DE, US], currency: [EUR, USD, CHF]}}
    refused: bad_parameter
  - row: {entity: price, id: 1, params: {country: DE}}
    refused: missing_parameter
`)
	r := call(t, nil, "map", "test", cases, "--map", file)
	for _, text := range []string{
		"the lookups of country find 2 values and those of currency 1 (line 11): they go together, so give as many of each",
		"the row does not give currency, and a lookup finds it: say what, with lookups: {country: [7], currency: [7]}, or give it",
		"6 cases, 2 failed",
	} {
		if r.code != exitFail || !strings.Contains(r.out, text) {
			t.Errorf("no %q in %+v", text, r)
		}
	}
}
