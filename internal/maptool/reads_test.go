package maptool_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/unstale/unstale/internal/maptool"
	"github.com/unstale/unstale/invalidation"
)

const readsMap = `
version: 1
vars: {app: shop, locales: [en, de]}
entities:
  product: {params: [category_id], keys: ["{app}:product:{id}:{locales}"], patterns: ["{app}:category:{category_id}:list:*"]}
  coupon: {keys: ["{app}:coupon:{id}"]}
  brand: {tags: ["brand-{id}"], sets: ["{app}:brand:{id}:pages"]}
reads:
  product_page: {key: "{app}:product:{product_id}:{locales}", ttl: 1m}
  category_list: {key: "{app}:category:{category_id}:list:p{page}", ttl: 1m, each: {page: 1..5}}
  coupon: {key: "{app}:coupon:{coupon_id}", ttl: 1m}
  brand_logo: {key: "{app}:logo:{brand_id}", tags: ["brand-{brand_id}"], ttl: 1m}
  brand_text: {key: "{app}:text:{brand_id}", sets: ["{app}:brand:{brand_id}:pages"], ttl: 1m}
`

// problems returns those of a case whose row is product 42, moved from category 7 to 9, or another.
func problems(t *testing.T, field, text, row string) []string {
	t.Helper()
	m, err := invalidation.Parse("map.yaml", []byte(readsMap), nil)
	if err != nil {
		t.Fatal(err)
	}
	cases, err := maptool.ReadCases(fmt.Appendf(nil, "cases:\n  - row: %s\n    %s: ['%s']\n", row, field, text))
	if err != nil {
		t.Fatal(err)
	}
	return maptool.RunCases(m, cases).Cases[0].Problems
}

// A case names an entry of the section reads with its values, in their order or by name. Its key,
// its tags or its index sets reach it.
func TestReads(t *testing.T) {
	t.Parallel()
	const product = "{entity: product, id: 42, params: {category_id: [7, 9]}}"
	for _, c := range []struct {
		text, row string
		reached   bool
	}{
		{"product_page(42, de)", product, true},
		{"product_page(43, de)", product, false},
		{"product_page(locales=de, product_id=42)", product, true},
		{"category_list(9, 5)", product, true},
		{"category_list( 9 , page=5 )", product, true},
		{"category_list(8, 5)", product, false},
		{"category_list", product, false},     // a key
		{"shop:a(42)", product, false},        // a key
		{"shop:product:42:de", product, true}, // a key
		{`coupon("a, (b)=c")`, `{entity: coupon, id: "a, (b)=c"}`, true},
		{"coupon(coupon_id=a=b)", "{entity: coupon, id: a=b}", true},
		{"brand_logo(3)", "{entity: brand, id: 3}", true},
		{"brand_text(3)", "{entity: brand, id: 3}", true},
		{"brand_text(4)", "{entity: brand, id: 3}", false},
	} {
		for field, want := range map[string]bool{"reaches": c.reached, "spares": !c.reached} {
			if got := problems(t, field, c.text, c.row); (len(got) == 0) != want {
				t.Errorf("%s %s: %q", field, c.text, got)
			}
		}
	}
	if got := problems(t, "reaches", "product_page(43, de)", product); !slices.Contains(got, `it does not reach product_page(43, de), which is ["shop:product:43:de"] (line 3); `+
		`it reaches "shop:category:7:list:*", "shop:category:9:list:*", "shop:product:42:de", "shop:product:42:en"`) {
		t.Errorf("%q", got)
	}
}

// A wrong expectation fails even if the row must spare it, with its line and the fix.
func TestReadsRefused(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"product_pag(42, de)":             `product_pag(42, de) (line 3) is not a read of the map; did you mean "product_page"?`,
		"home()":                          "is not a read of the map; the reads are product_page, category_list, coupon, brand_logo, brand_text",
		"product_page(42)":                "needs 2 values and has 1; write product_page(product_id, locales)",
		"product_page()":                  "needs 2 values and has 0; write product_page(product_id, locales)",
		"product_page(42,)":               "has an empty locales; write product_page(product_id, locales)",
		"product_page(42, fr)":            `has locales "fr", which the map does not list; use for example en`,
		"category_list(7, 21)":            `has page "21", which the map does not list; did you mean "1"?`,
		"category_list(7":                 "has no closing parenthesis; write the read in double quotes",
		"category_list(id=7, 1)":          `has no value "id"; write category_list(category_id, page), or name the value: category_id=7`,
		"category_list(7, category_id=7)": "gives category_id twice; write category_list(category_id, page)",
		`coupon("a)`:                      "has a quote that is not closed; write coupon(coupon_id)",
	} {
		got := problems(t, "spares", text, "{entity: coupon, id: X}")
		if len(got) != 1 || !strings.Contains(got[0], want) {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
}
