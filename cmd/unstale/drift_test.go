package main

import (
	"os"
	"strings"
	"testing"

	"github.com/unstale/unstale/internal/testenv"
)

// A drift is a difference between what readers store and what rows make stale. docs/map.md counts
// which tool names it.
type drift struct {
	name     string
	old, new string // in the shipped map
	code     string // or an expression of an application that uses the generated package
	want     string // in the output
}

var driftsOfMaps = []drift{
	{"a typo in a reader's key", `key: "{app}:{env}:product:{product_id}"`, `key: "{app}:{env}:prodcut:{product_id}"`, "", `product does not make product_page stale`},
	{"a typo in an entity's key", `keys: ["{app}:{env}:coupon:{id}"]`, `keys: ["{app}:{env}:coupons:{id}"]`, "", `coupon does not make coupon stale`},
	{"a reader's key without the prefix", `key: "{app}:{env}:coupon:{coupon_id}"`, `key: "coupon:{coupon_id}"`, "", `coupon does not make coupon stale`},
	{"a reader's key with another prefix", `key: "{app}:{env}:home"`, `key: "shop:{env}:home"`, "", `category does not make home stale`},
	{"an entity that no longer expands as another", "  variant:\n    params: [product_id, category_id]\n    as: { product: \"{product_id}\" }", "  variant:\n    params: [product_id]\n    keys: [\"{app}:{env}:variant:{product_id}\"]", "", `variant does not make product_page stale`},
	{"an entity that from does not know", "from: [product, variant, inventory]", "from: [product, variants, inventory]", "", `did you mean "variant"?`},
	{"a tag in the place of a key", "    key: \"{app}:{env}:coupon:{coupon_id}\"\n", "    key: \"{app}:{env}:voucher:{coupon_id}\"\n    tags: [\"coupon:{coupon_id}\"]\n", "", `coupon does not make coupon stale`},
	{"the id of another thing", `category:{category_id}:list:p{page}`, `category:{product_id}:list:p{page}`, "", `the same shape, and another thing`},
	{"pages beyond the range", "    keys: [\"{app}:{env}:home\"]\n    patterns: [\"{app}:{env}:category:{id}:list:*\"]", "    each: { page: 1..5, sort: [new, price] }\n    keys: [\"{app}:{env}:home\", \"{app}:{env}:category:{id}:list:p{page}:sort:{sort}\"]", "", `category does not make category_list stale`},
	{"a key that nobody stores", `keys: ["{app}:{env}:coupon:{id}"]`, `keys: ["{app}:{env}:coupon:{id}", "{app}:{env}:coupon:{id}:uses"]`, "", `reaches no read`},
	{"a part of the key that rows do not know", "key: \"{app}:{env}:coupon:{coupon_id}\"", "key: \"{app}:{env}:coupon:{coupon_id}:{locale}\"", "", `coupon does not make coupon stale`},
	{"a range that ends before it begins", "ttl: 9m..11m", "ttl: 11m..9m", "", `the range ends before it begins`},
	{"a type that the ids do not have", "product_id: int,", "prodcut_id: int,", "", `did you mean "product_id"?`},
}

var driftsOfCode = []drift{
	{name: "a typo in a read", code: `shopcache.ProductPages(42)`, want: "undefined: shopcache.ProductPages"},
	{name: "a typo in an entity", code: `shopcache.InvalidateProdcut(42)`, want: "undefined: shopcache.InvalidateProdcut"},
	{name: "a typo in a parameter", code: `shopcache.ProductParams{CategorieID: []int64{7}}`, want: "unknown field CategorieID"},
	{name: "an id in another form", code: `shopcache.ProductPage("042")`, want: `cannot use "042"`},
	{name: "a value that the key lacks", code: `shopcache.CategoryList(7, 2)`, want: "not enough arguments"},
}

// The check names each drift of the map.
func TestDriftsOfMaps(t *testing.T) {
	t.Parallel()
	shipped, err := os.ReadFile(shippedMap)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range driftsOfMaps {
		if n := strings.Count(string(shipped), d.old); n != 1 {
			t.Errorf("%s: %q stands %d times in the shipped map", d.name, d.old, n)
			continue
		}
		file := writeFile(t, strings.Replace(string(shipped), d.old, d.new, 1))
		if r := call(t, nil, "map", "check", file); r.code != exitFail || !strings.Contains(r.err, d.want) || !strings.Contains(r.err, file+":") {
			t.Errorf("%s: no %q in %+v", d.name, d.want, r)
		}
	}
}

// The compiler names each drift of code that uses the generated package.
func TestDriftsOfCode(t *testing.T) {
	t.Parallel()
	generated := call(t, nil, "map", "generate", "--package", "shopcache", shippedMap)
	if generated.code != exitDone {
		t.Fatalf("%+v", generated)
	}
	build := func(code string) string {
		return testenv.Compile(t, "../..", map[string]string{
			"internal/drift/shopcache/shopcache.go": generated.out,
			"internal/drift/use.go":                 "package drift\n\nimport \"github.com/unstale/unstale/internal/drift/shopcache\"\n\nvar _ = " + code + "\n",
		})
	}
	if out := build(`shopcache.ProductPage(42)`); out != "" {
		t.Fatal(out)
	}
	for _, d := range driftsOfCode {
		if out := build(d.code); !strings.Contains(out, d.want) {
			t.Errorf("%s: no %q in %s", d.name, d.want, out)
		}
	}
}
