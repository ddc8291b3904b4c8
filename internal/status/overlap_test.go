package status

import "testing"

func TestOverlap(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"shop:*", "shop:product:*", true},
		{"shop:product:*", "shop:list:*", false},
		{"shop:*:a", "shop:*:b", false},
		{"shop:*:a", "*:product:*", true},
		{"*", "", true},
		{"a*b*c", "abc", true},
		{"a*b*c", "acb", false},
		{"a?c", "abc", true},
		{"a?", "a", false},
		{`a\*`, "ab", false},
		{`a\*`, "a*", true},
		{`a\?`, `a\?`, true},
		{"**", "x*y", true},
	} {
		for _, pair := range [][2]string{{c.a, c.b}, {c.b, c.a}} {
			if got := parseGlob(pair[0]).overlaps(parseGlob(pair[1])); got != c.want {
				t.Errorf("%q: %v", pair, got)
			}
		}
	}
}
