package maptool_test

import (
	"strings"
	"testing"

	"github.com/unstale/unstale/internal/maptool"
	"github.com/unstale/unstale/invalidation"
)

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
		m, err := invalidation.Parse("map.yaml", []byte(text), nil)
		if err != nil {
			t.Fatal(err)
		}
		for language, generate := range map[string]func(*maptool.Names) ([]byte, error){
			"Go":         func(n *maptool.Names) ([]byte, error) { return maptool.GenerateGo(n, "shop", "map.yaml") },
			"TypeScript": func(n *maptool.Names) ([]byte, error) { return maptool.GenerateTypeScript(n, "map.yaml") },
			"PHP":        func(n *maptool.Names) ([]byte, error) { return maptool.GeneratePHP(n, "ShopCache", "map.yaml") },
		} {
			code, err := generate(maptool.NamesOf(m))
			if !strings.Contains(string(code), c.want) || (err == nil) != (c.wantError == "") || err != nil && !strings.Contains(err.Error(), c.wantError) {
				t.Errorf("%s: %s: %v\n%s", c.entities, language, err, code)
			}
		}
	}
}
