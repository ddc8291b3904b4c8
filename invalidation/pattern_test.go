package invalidation_test

import (
	"fmt"
	"testing"

	"github.com/unstale/unstale/invalidation"
)

func TestMapPatterns(t *testing.T) {
	t.Parallel()
	m, err := invalidation.Parse("map.yaml", []byte(`version: 1
vars: {app: "shop*"}
params: {a: {}, b: {}}
entities:
  zebra: {patterns: ["{app}:zebra:{id}:*"]}
  ant:   {params: [a, b], patterns: ["ant:long:{a}{b}*:x?", "ant:long:{a}\\*{b}"]}
  bee:   {keys: ["bee:{id}"]}
`), nil)
	if err != nil {
		t.Fatal(err)
	}
	want := `[{ant ant:long:{a}{b}*:x? ant:long:***:x?} {ant ant:long:{a}\*{b} ant:long:*\**} {zebra {app}:zebra:{id}:* shop\*:zebra:*:*}]`
	if got := fmt.Sprint(m.Patterns()); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
