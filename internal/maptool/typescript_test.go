package maptool_test

import (
	"strings"
	"testing"

	"github.com/unstale/unstale/internal/maptool"
)

// The modules of the shipped map, and of one with all types, values, variables, tags and comments.
// The tests of clients/typescript compile and call them.
func TestTypeScript(t *testing.T) {
	t.Parallel()
	const folder = "../../clients/typescript/"
	for yaml, file := range map[string]string{
		"../../mapping.yaml":  "recipes/shopcache.ts",
		"testdata/all.yaml":   "test/generated/all.ts",
		"testdata/words.yaml": "test/generated/words.ts",
	} {
		golden(t, yaml, folder+file, func(n *maptool.Names) ([]byte, error) {
			return maptool.GenerateTypeScript(n, yaml[strings.LastIndexByte(yaml, '/')+1:])
		})
	}
}

// A name that TypeScript cannot have, and two names that become one, are errors that name both.
func TestTypeScriptRefuses(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		twoEntities + `reads: { page_one: { key: "a:{product_id}", ttl: 1m }, pageOne: { key: "b:{x}", ttl: 1m, of: { x: product_id } } }`: "the read page_one and the read pageOne both have the TypeScript name pageOne",
		twoEntities + `reads: { map: { key: "a:{product_id}", ttl: 1m } }`:                                                                 "the variables of the map and the read map both have the TypeScript name map",
		twoEntities + `reads: { invalidate_product: { key: "a:{product_id}", ttl: 1m } }`:                                                  "the read invalidate_product and the entity product both have the TypeScript name invalidateProduct",
		"version: 1\nentities: { product: { params: [type, Type], keys: [\"a:{id}:{type}:{Type}\"] } }\n":                                  "both have the TypeScript name type",
		"version: 1\nentities: { product: { params: [_1], keys: [\"a:{id}:{_1}\"] } }\n":                                                   "the param _1 of the entity product has no TypeScript name",
		"version: 1\nentities: { product: { params: [__proto__], keys: [\"a:{id}:{__proto__}\"] } }\n":                                     "the param __proto__ of the entity product has no TypeScript name",
		"version: 1\nentities: { product: { params: [default, default_value], keys: [\"a:{id}:{default}:{default_value}\"] } }\n":          "both have the TypeScript name defaultValue",
	} {
		if code, err := maptool.GenerateTypeScript(parse(t, text), "map.yaml"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\ngot %v, want %q\n%s", text, err, want, code)
		}
	}
}

// A module imports what it uses, so that a compiler that reports unused names accepts it.
func TestTypeScriptImports(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"version: 1\nentities: { product: { keys: [\"a:{id}\"] } }\n":                                   `import { ReadMap, type Invalidation } from`,
		"version: 1\nentities: { product: { keys: [\"a:{id}\"] } }\ntypes: { product_id: int }\n":       `import { ReadMap, type Id, type Invalidation } from`,
		"version: 1\nentities: { product: { keys: [\"a\"] } }\nreads: { a: { key: \"a\", ttl: 1m } }\n": `import { ReadMap, type Invalidation, type Read } from`,
	} {
		if code, err := maptool.GenerateTypeScript(parse(t, text), "map.yaml"); err != nil || !strings.Contains(string(code), want) {
			t.Errorf("%v: no %q in\n%s", err, want, code)
		}
	}
}
