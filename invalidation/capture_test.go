package invalidation_test

import (
	"reflect"
	"testing"

	"github.com/unstale/unstale/invalidation"
)

const captured = `version: 1
entities:
  product: {params: [category_id], keys: ["p:{id}:{category_id}"]}
`

// The section has the effect that its comment describes, and missing fields have their defaults. It
// does not change the version of the map, since rows expand as before; but for an
// empty ID, which only the database can have.
func TestCaptures(t *testing.T) {
	t.Parallel()
	section := captured + `capture:
  products: {entity: product, id: id}
  "odd name":
    - {entity: product, id: "BIN_TO_UUID({row}.id)", watch: [name], params: {category_id: cat}, on: [update, delete], cascades: ignore, on_error: skip}
    - {entity: product, id: id, cascades: {fk_a: ignore, fk.b: ignore delete, other.fk_c: ignore update}}
`
	unset := func(string) (string, bool) { return "", false }
	plain, err := invalidation.Parse("map.yaml", []byte(captured), unset)
	if err != nil {
		t.Fatal(err)
	}
	m, err := invalidation.Parse("map.yaml", []byte(section), unset)
	if err != nil {
		t.Fatal(err)
	}
	want := []invalidation.Capture{
		{Table: "products", Entity: "product", ID: "id", Insert: true, Update: true, Delete: true, Line: 5, Column: 3},
		{
			Table: "odd name", Entity: "product", ID: "BIN_TO_UUID({row}.id)", Watch: []string{"name"},
			Params: []invalidation.CaptureParam{{"category_id", "cat"}}, Update: true, Delete: true, IgnoreCascades: true, SkipErrors: true, Line: 7, Column: 7,
		},
		{
			Table: "odd name", Entity: "product", ID: "id", Insert: true, Update: true, Delete: true, Line: 8, Column: 7,
			Ignored: []invalidation.IgnoredCascade{{"fk_a", true, true}, {"fk.b", true, false}, {"other.fk_c", false, true}},
		},
	}
	if got := m.Captures(); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if len(plain.Captures()) != 0 || plain.Version() != m.Version() {
		t.Errorf("the map without it: captures %v, version %s, not %s", plain.Captures(), plain.Version(), m.Version())
	}
	if err := compiledSchema(t).Validate(instance(t, []byte(section))); err != nil {
		t.Error(err)
	}
	m.Captures()[1].Watch[0] = "x"
	if m.Captures()[1].Watch[0] != "name" {
		t.Error("a caller can change the map")
	}
	if id := want[1].ID; id.Of("OLD") != "BIN_TO_UUID(OLD.id)" || !id.IsExpression() || want[0].ID.IsExpression() {
		t.Error("the expression")
	}
}
