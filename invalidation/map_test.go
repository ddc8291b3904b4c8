package invalidation

import (
	"os"
	"reflect"
	"testing"
)

// shipped returns the map at the top level, in the environment prod.
func shipped(t testing.TB) *Map {
	t.Helper()
	src, err := os.ReadFile("../mapping.yaml")
	if err != nil {
		t.Fatal(err)
	}
	m, err := Parse("mapping.yaml", src, nil)
	if err != nil {
		t.Fatalf("the shipped map is broken:\n%v", err)
	}
	return m
}

// The rows of K2, one by one, on the shipped map.
func TestShippedMap(t *testing.T) {
	t.Parallel()
	m := shipped(t)
	lists := []string{"zahraah:prod:category:7:list:*", "zahraah:prod:category:9:list:*"}
	cities := []string{"zahraah:prod:shipping:city:*"}
	for entity, c := range map[string]struct {
		params string
		want   Plan
	}{
		"product":    {`{"category_id":[7,9]}`, Plan{Keys: []string{"zahraah:prod:product:42"}, Patterns: lists}},
		"variant":    {`{"product_id":5,"category_id":[7,9]}`, Plan{Keys: []string{"zahraah:prod:product:5"}, Patterns: lists}},
		"inventory":  {`{"product_id":5,"category_id":[7,9]}`, Plan{Keys: []string{"zahraah:prod:product:5"}, Patterns: lists}},
		"category":   {``, Plan{Keys: []string{"zahraah:prod:home"}, Patterns: []string{"zahraah:prod:category:42:list:*"}}},
		"pricing":    {``, Plan{Patterns: cities}},
		"price_rule": {``, Plan{Patterns: cities}},
		"shipping":   {``, Plan{Patterns: cities}},
		"coupon":     {``, Plan{Keys: []string{"zahraah:prod:coupon:42"}}},
	} {
		params, err := ParseParams([]byte(c.params))
		if err != nil {
			t.Fatal(err)
		}
		got, err := m.Expand(Row{Entity: entity, ID: "42", Params: params}, nil)
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: got %+v, %v\nwant %+v", entity, got, err, c.want)
		}
	}
}
