package invalidation_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/unstale/unstale/invalidation"
)

// Names are globs that match all results of rows. Literal text of the map has no wildcards in them.
func TestNames(t *testing.T) {
	t.Parallel()
	m, err := invalidation.Parse("map.yaml", []byte(`version: 1
params:
  category_id: {lookup: {by: [id], sql: "SELECT id, category_id FROM products WHERE id IN (?)"}}
entities:
  product:
    params: [category_id]
    keys: ["shop:[{id}]", "shop:lists:{category_id}"]
    patterns: ["shop:page:{id}:*"]
    sets: ["tag:{category_id}"]
    tags: ["product-{id}"]
    hold: 3s
  variant: {params: [product_id], as: {product: "{product_id}"}}
`), func(string) (string, bool) { return "", false })
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, n := range m.Names() {
		got = append(got, fmt.Sprintf("%s %s %s", n.Entity, n.Kind, n.Glob))
		if n.Hold != 3*time.Second || n.Text == "" {
			t.Errorf("%+v", n)
		}
	}
	want := []string{`product key shop:\[*]`, "product key shop:lists:*", "product stamp stamp:product-*", "product pattern shop:page:*:*", "product set tag:*"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, wanted %q", got, want)
	}
	if l := m.Lookups(); len(l) != 1 || l[0].Param != "category_id" {
		t.Errorf("%+v", l)
	}
}
