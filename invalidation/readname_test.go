package invalidation_test

import (
	"slices"
	"strings"
	"testing"
)

// A key is a name of a read if each hole takes one whole value that its type and its list allow.
func TestReadsOfAKey(t *testing.T) {
	t.Parallel()
	m := mustParse(t, `version: 1
vars: {app: shop, lang: [en, de-at]}
entities:
  product: {keys: ["{app}:product:{id}", "{app}:{lang}:product:{id}"], tags: ["product-{id}"], sets: ["set:{id}"]}
  category: {patterns: ["{app}:category:{id}:list:*"]}
  search: {patterns: ["{app}:search:*"]}
types: {product_id: int}
reads:
  page: {key: "{app}:product:{product_id}", tags: ["product-{product_id}"], sets: ["set:{product_id}"], ttl: 5m}
  local: {key: "{app}:{lang}:product:{product_id}", ttl: 5m}
  list: {key: "{app}:category:{category_id}:list:p{page}:{sort}", each: {page: 1..12}, ttl: 5m}
  search: {key: "{app}:search:{words}", ttl: 5m}
  newest: {key: "{app}:search:newest", ttl: 5m}
`)
	for _, c := range []struct{ key, want string }{
		{"shop:product:42", "page key"},
		{"shop:product:042", ""},
		{"shop:product:42:reviews", ""},
		{"shop:product:", ""},
		{"stamp:product-42", "page stamp"},
		{"set:42", "page set"},
		{"shop:de-at:product:7", "local key"},
		{"shop:fr:product:7", ""},
		{"shop:category:shoes:list:p12:new", "list key"},
		{"shop:category:shoes:list:p13:new", ""},
		{"shop:category:shoes:list:p1:price:asc", "list key unsure"},
		{"shop:search:red shoes", "search key"},
		{"shop:search:newest", "search key, newest key"},
		{"shop", ""},
		{"", ""},
	} {
		var got []string
		for _, n := range m.Reads().Of(c.key) {
			text := n.Read + " " + string(n.Kind)
			if n.Unsure {
				text += " unsure"
			}
			got = append(got, text)
		}
		if strings.Join(got, ", ") != c.want {
			t.Errorf("%s: %q, want %q", c.key, got, c.want)
		}
	}
	for _, n := range m.Names() {
		want := map[string][]string{"product": {"page"}, "category": {"list"}}[n.Entity]
		switch {
		case n.Text == "{app}:{lang}:product:{id}":
			want = []string{"local"}
		case n.Entity == "search":
			want = []string{"search", "newest"}
		}
		if !slices.Equal(n.Reads, want) {
			t.Errorf("%s reaches %q, want %q", n.Text, n.Reads, want)
		}
	}
}
