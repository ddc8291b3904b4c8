package maptool_test

import (
	"strings"
	"testing"

	"github.com/unstale/unstale/internal/maptool"
)

// The classes of the shipped map, of one with all types, values, variables, tags and comments, and of
// ones with names that have a meaning in a language. The tests of clients/php call them.
func TestPHP(t *testing.T) {
	t.Parallel()
	const folder = "../../clients/php/tests/Generated/"
	for yaml, class := range map[string]string{"../../mapping.yaml": "ShopCache", "testdata/all.yaml": "All", "testdata/words.yaml": "Words", "testdata/php.yaml": "Names"} {
		golden(t, yaml, folder+class+".php", func(n *maptool.Names) ([]byte, error) {
			return maptool.GeneratePHP(n, `Unstale\Tests\Generated\`+class, yaml[strings.LastIndexByte(yaml, '/')+1:])
		})
	}
}

// A name that PHP cannot have, and two names that become one, are errors that name both. Names of
// methods do not differ in case.
func TestPHPRefuses(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		twoEntities + `reads: { page_one: { key: "a:{product_id}", ttl: 1m }, pageOne: { key: "b:{x}", ttl: 1m, of: { x: product_id } } }`: "the read page_one and the read pageOne both have the PHP name pageOne",
		twoEntities + `reads: { pageOne: { key: "a:{product_id}", ttl: 1m }, pageone: { key: "b:{x}", ttl: 1m, of: { x: product_id } } }`:  "both have the PHP name page",
		twoEntities + `reads: { Map: { key: "a:{product_id}", ttl: 1m } }`:                                                                 "the variables of the map and the read Map both have the PHP name map",
		twoEntities + `reads: { invalidate_product: { key: "a:{product_id}", ttl: 1m } }`:                                                  "the read invalidate_product and the entity product both have the PHP name invalidateProduct",
		"version: 1\nentities: { product: { params: [this, this_value], keys: [\"a:{id}:{this}:{this_value}\"] } }\n":                      "both have the PHP name thisValue",
	} {
		if code, err := maptool.GeneratePHP(parse(t, text), "ShopCache", "map.yaml"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\ngot %v, want %q\n%s", text, err, want, code)
		}
	}
}

// The class is a name of PHP, which may have a namespace.
func TestPHPClass(t *testing.T) {
	t.Parallel()
	names := parse(t, "version: 1\nentities: { product: { keys: [\"a:{id}\"] } }\n")
	for class, want := range map[string]string{
		"ShopCache":          "strict_types=1);\n\n/** The names of the map map.yaml. */\nfinal class ShopCache\n{",
		`\App\Cache\Shop`:    "\n\nnamespace App\\Cache;\n\n/** ",
		`App\List\ShopCache`: "namespace App\\List;",
	} {
		if code, err := maptool.GeneratePHP(names, class, "map.yaml"); err != nil || !strings.Contains(string(code), want) {
			t.Errorf("%s: %v: no %q in\n%s", class, err, want, code)
		}
	}
	for _, class := range []string{"", `App\`, "App/ShopCache", "1Shop", "Shop-Cache", `App\List`, "READONLY", `namespace\Shop`, "Shop;"} {
		if _, err := maptool.GeneratePHP(names, class, "map.yaml"); err == nil || !strings.Contains(err.Error(), "must be a PHP class name, for example 'App\\ShopCache'") {
			t.Errorf("%q: %v", class, err)
		}
	}
}
