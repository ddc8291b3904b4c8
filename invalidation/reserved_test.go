package invalidation_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/unstale/unstale/invalidation"
)

// Keys of a row of KeyEntity are literal in every map, and its IDs are text, not templates.
func TestKeyEntity(t *testing.T) {
	t.Parallel()
	for _, m := range []*invalidation.Map{shipped(t), mustParse(t, "version: 1\nentities: {p: {sets: [\"s:{id}\"]}}\n")} {
		for _, key := range []string{"k", "*", "shop:{id}:[a]?\\", "{app}", "a\nb", "'; DROP TABLE x --", strings.Repeat("ü", 255)} {
			row := invalidation.Row{Entity: invalidation.KeyEntity, ID: key, Params: invalidation.Params{{Name: "x", Values: []string{"y"}}}}
			plan, err := m.Expand(row, nil)
			if err != nil || !reflect.DeepEqual(plan, invalidation.Plan{Keys: []string{key}}) {
				t.Errorf("%q: %+v, %v", key, plan, err)
			}
			if all, err := m.ExpandByTemplate(row, nil); err != nil || len(all) != 1 || !reflect.DeepEqual(all[0].Names, []string{key}) {
				t.Errorf("%q: %+v, %v", key, all, err)
			}
			if names := m.Undeclared(row); !reflect.DeepEqual(names, []string{"x"}) {
				t.Errorf("undeclared: %q", names)
			}
		}
	}
}

// A pattern is used unchanged. It is refused if it is not a glob, or if it matches too much and the
// row does not permit that.
func TestPatternEntity(t *testing.T) {
	t.Parallel()
	m := shipped(t)
	everything := func(values ...string) invalidation.Params {
		return invalidation.Params{{Name: invalidation.EverythingParam, Values: values}}
	}
	for _, c := range []struct {
		pattern string
		params  invalidation.Params
		want    string // the error, or ""
	}{
		{"zahraah:prod:list:*", nil, ""},
		{"zahraah:prod:list:\\*:?*", nil, ""},
		{"zahraah:prod:home", nil, ""},
		{"zahraah:prod:{id}:*", nil, ""},
		{"other:app:*", nil, ""},
		{"zahraah:prod:*", nil, `pattern_too_wide: "zahraah:prod:*" matches all keys of the map; write more literal text, or set the parameter everything to true`},
		{"zahraah:*", nil, "matches all keys of the map"},
		{"zahraah:????:*", nil, "matches all keys of the map"},
		{"zahraah:prod**?*", nil, "matches all keys of the map"},
		{"zahraah:prod:?*", nil, "matches all keys of the map"},
		{"*", nil, `pattern_too_wide: "*" has 0 bytes of literal text before its first wildcard, and limits.pattern_prefix is 8`},
		{"?ahraah:prod:list:1", nil, "has 0 bytes"},
		{"zahraah*", nil, "has 7 bytes"},
		{"zahraah:prod:*", everything("false"), "matches all"},
		{"zahraah:prod:*", everything("true", "true"), "matches all"},
		{"zahraah:prod:*", everything(), "matches all"},
		{"zahraah:prod:*", everything("true"), ""},
		{"*", everything("true"), ""},
		{"zahraah:prod:[ab]", everything("true"), `bad_parameter "id": an unescaped [ starts a character class`},
		{"zahraah:prod:\\", nil, `bad_parameter "id": a backslash at the end`},
		{"", everything("true"), `bad_parameter "id": an id cannot be empty`},
	} {
		plan, err := m.Expand(invalidation.Row{Entity: invalidation.PatternEntity, ID: c.pattern, Params: c.params}, nil)
		if c.want == "" {
			if err != nil || !reflect.DeepEqual(plan, invalidation.Plan{Patterns: []string{c.pattern}}) {
				t.Errorf("%q %v: %+v, %v", c.pattern, c.params, plan, err)
			}
			continue
		}
		var fault *invalidation.RowError
		if !errors.As(err, &fault) || !strings.Contains(err.Error(), c.want) || plan.Len() > 0 {
			t.Errorf("%q %v: %+v, %v", c.pattern, c.params, plan, err)
		}
	}
	brackets := mustParse(t, "version: 1\nentities: {p: {keys: [\"shop[eu]:{id}\"]}}\n")
	if _, err := brackets.Expand(invalidation.Row{Entity: invalidation.PatternEntity, ID: `shop\[eu\]:*`}, nil); err == nil || !strings.Contains(err.Error(), "matches all keys") {
		t.Errorf("escaped: %v", err)
	}
	one := mustParse(t, "version: 1\nentities: {p: {keys: [\"shop:prod:{id}\"]}}\n")
	if _, err := one.Expand(invalidation.Row{Entity: invalidation.PatternEntity, ID: `shop:prod:\*`}, nil); err != nil {
		t.Errorf("one literal key: %v", err)
	}
	nested, err := invalidation.ParseParams([]byte(`{"everything": {"a": true}}`))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Expand(invalidation.Row{Entity: invalidation.PatternEntity, ID: "*", Params: nested}, nil); err == nil || !strings.HasPrefix(err.Error(), `bad_parameter "everything"`) {
		t.Errorf("nested: %v", err)
	}
	// a map of tags alone has no key that the pattern must not match
	tags := mustParse(t, "version: 1\nentities: {p: {tags: [\"p-{id}\"]}}\n")
	if _, err := tags.Expand(invalidation.Row{Entity: invalidation.PatternEntity, ID: "anything*"}, nil); err != nil {
		t.Error(err)
	}
}

// A reserved row may not name what unstale keeps in Redis: without a set that is being cleared, the
// members of the set would stay.
func TestReservedRowsSpareOwnNames(t *testing.T) {
	t.Parallel()
	m := shipped(t)
	everything := invalidation.Params{{Name: invalidation.EverythingParam, Values: []string{"true"}}}
	for _, row := range []invalidation.Row{
		{Entity: invalidation.KeyEntity, ID: "unstale:alive"}, {Entity: invalidation.KeyEntity, ID: "lock:hold:{a}"}, {Entity: invalidation.KeyEntity, ID: "lock:fill:a"},
		{Entity: invalidation.PatternEntity, ID: "unstale:*"}, {Entity: invalidation.PatternEntity, ID: "unstale:set:*", Params: everything},
		{Entity: invalidation.PatternEntity, ID: "lock:hold:*"}, {Entity: invalidation.PatternEntity, ID: `unstale\:?*`},
	} {
		if plan, err := m.Expand(row, nil); err == nil || !strings.Contains(err.Error(), "unstale's own") || plan.Len() > 0 {
			t.Errorf("%+v: %+v, %v", row, plan, err)
		}
	}
}

// Descriptions of a map leave the reserved entities out.
func TestReservedIsNotListed(t *testing.T) {
	t.Parallel()
	m := shipped(t)
	for _, name := range m.Entities() {
		if invalidation.IsReserved(name) {
			t.Errorf("%s is listed", name)
		}
	}
	for _, n := range m.Names() {
		if invalidation.IsReserved(n.Entity) {
			t.Errorf("%+v is listed", n)
		}
	}
	if found, _ := m.Origins("zahraah:prod:product:1", 100); len(found) != 3 {
		t.Errorf("%+v", found)
	}
	for _, name := range []string{invalidation.KeyEntity, invalidation.PatternEntity} {
		if d, known := m.Describe(name); !known || d.Entity != name {
			t.Errorf("%s: %+v", name, d)
		}
	}
}
