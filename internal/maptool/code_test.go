package maptool_test

import (
	"strings"
	"testing"

	"github.com/unstale/unstale/internal/maptool"
)

// twoEntities is the begin of maps.
const twoEntities = "version: 1\nentities: { product: { keys: [\"a:{id}\"] }, product_id: { keys: [\"b:{id}\"] } }\n"

var generators = map[string]func(*maptool.Names) ([]byte, error){
	"Go":         func(n *maptool.Names) ([]byte, error) { return maptool.GenerateGo(n, "shop", "map.yaml") },
	"TypeScript": func(n *maptool.Names) ([]byte, error) { return maptool.GenerateTypeScript(n, "map.yaml") },
	"PHP":        func(n *maptool.Names) ([]byte, error) { return maptool.GeneratePHP(n, "ShopCache", "map.yaml") },
}

// Names that a language cannot have, and two names that become one, are errors that name both.
func TestGenerateRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ text, want, goName, name string }{
		{"version: 1\nentities: { product: { params: [a_b, aB], keys: [\"a:{id}:{a_b}:{aB}\"] } }\n", "the params aB and a_b of the entity product both have the LANGUAGE name ", "AB", "aB"},
		{twoEntities + `reads: { _1: { key: "a:{product_id}", ttl: 1m } }`, "the read _1 has no LANGUAGE name", "", ""},
		{twoEntities + `reads: { a: { key: "a:{product_id}:{product__id}", ttl: 1m } }`, "the values product_id and product__id of the read a both have the LANGUAGE name ", "productID", "productId"},
		{twoEntities + "vars: { l: [\"${L}\", x] }\nreads: { p: { key: \"a:{product_id}:{l}\", ttl: 1m } }", "the var l is a list with values of the environment", "", ""},
	} {
		for language, generate := range generators {
			want := strings.ReplaceAll(c.want, "LANGUAGE", language)
			if language == "Go" {
				want += c.goName
			} else {
				want += c.name
			}
			if code, err := generate(parse(t, c.text)); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s\ngot %v, want %q\n%s", c.text, err, want, code)
			}
		}
	}
}

// The names of entities may have - . and :, which no language allows in names of functions.
func TestGenerateEntityNames(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ entities, want, wantError string }{
		{`shop.order-line: {keys: ["a:{id}"]}`, "nvalidateShopOrderLine(", ""},
		{`"a:b": {keys: ["a:{id}"]}`, "nvalidateAB(", ""},
		{`{a-b: {keys: ["a:{id}"]}, a.b: {keys: ["b:{id}"]}}`, "", "the entity a-b and the entity a.b both have the"},
		{`"..": {keys: ["a:{id}"]}`, "nvalidate(", ""},
		{`x-1: {keys: ["a:{id}"]}`, "nvalidateX1(", ""},
	} {
		text := "version: 1\nentities:\n  " + c.entities + "\n"
		for language, generate := range generators {
			code, err := generate(parse(t, text))
			if !strings.Contains(string(code), c.want) || (err == nil) != (c.wantError == "") || err != nil && !strings.Contains(err.Error(), c.wantError) {
				t.Errorf("%s: %s: %v\n%s", c.entities, language, err, code)
			}
		}
	}
}
