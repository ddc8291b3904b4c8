package invalidation_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/unstale/unstale/invalidation"
	"github.com/unstale/unstale/protocol"
)

// told writes an origin on one line.
func told(o invalidation.Origin) string {
	text := o.Entity + " " + o.ID
	for _, p := range o.Params {
		text += " " + p.Name + "=" + strings.Join(p.Values, ",")
	}
	return fmt.Sprint(text, " ", o.Via, " ", o.By.Kind, " ", o.By.Text)
}

func wantOrigins(t *testing.T, m *invalidation.Map, key string, want ...string) {
	t.Helper()
	list, all := m.Origins(key, 100)
	var got []string
	for _, o := range list {
		got = append(got, told(o))
	}
	slices.Sort(want)
	if slices.Sort(got); !slices.Equal(got, want) || !all {
		t.Errorf("%s, all: %v\ngot  %s\nwant %s", key, all, strings.Join(got, "\n     "), strings.Join(want, "\n     "))
	}
}

func TestOrigins(t *testing.T) {
	t.Parallel()
	m := shipped(t)
	const product, lists, own = "{app}:{env}:product:{id}", "{app}:{env}:category:{category_id}:list:*", "{app}:{env}:category:{id}:list:*"
	wantOrigins(t, m, "zahraah:prod:product:42", "product 42 [] key "+product, "variant  product_id=42 [product] key "+product, "inventory  product_id=42 [product] key "+product)
	wantOrigins(t, m, "zahraah:prod:category:7:list:p1:sort:new", "category 7 [] pattern "+own, "product  category_id=7 [] pattern "+lists,
		"variant  category_id=7 [product] pattern "+lists, "inventory  category_id=7 [product] pattern "+lists)
	wantOrigins(t, m, "zahraah:prod:home", "category  [] key {app}:{env}:home")
	wantOrigins(t, m, "zahraah:prod:shipping:city:3", "pricing  [] pattern {app}:{env}:shipping:city:*", "price_rule  [pricing] pattern {app}:{env}:shipping:city:*",
		"shipping  [] pattern {app}:{env}:shipping:city:*")
	for _, key := range []string{"", "zahraah:prod:product:", "zahraah:dev:product:42", "zahraah:prod:category::list:p1", "zahraah:prod:home:2"} {
		wantOrigins(t, m, key)
	}
	m = mustParse(t, `version: 1
entities:
  a:
    params: [x, y]
    each: { n: 1..3, s: [new, ""] }
    keys: ["k:{x}:{y}", "n:{n}{s}:{x}:{x}"]
    patterns: ["pattern:{x}?\\*:*"]
    sets: ["set:{id}"]
    tags: ["tag-{id}"]
  b:
    params: [p, x]
    as: { a: "{p}-{id}" }
`)
	wantOrigins(t, m, "k:1:2:3", "a  x=1 y=2:3 [] key k:{x}:{y}", "a  x=1:2 y=3 [] key k:{x}:{y}", "b  x=1 y=2:3 [a] key k:{x}:{y}", "b  x=1:2 y=3 [a] key k:{x}:{y}")
	wantOrigins(t, m, "pattern:äq*:", "a  x=ä [] pattern pattern:{x}?\\*:*", "b  x=ä [a] pattern pattern:{x}?\\*:*")
	wantOrigins(t, m, "k::", "a  x= y= [] key k:{x}:{y}", "b  x= y= [a] key k:{x}:{y}")
	wantOrigins(t, m, "n:2new:v:v", "a  x=v [] key n:{n}{s}:{x}:{x}", "b  x=v [a] key n:{n}{s}:{x}:{x}")
	wantOrigins(t, m, "n:3:a:b:a:b", "a  x=a:b [] key n:{n}{s}:{x}:{x}", "b  x=a:b [a] key n:{n}{s}:{x}:{x}")
	wantOrigins(t, m, "n:4:v:v")
	wantOrigins(t, m, "n:2:v:w")
	wantOrigins(t, m, "pattern:vq*:", "a  x=v [] pattern pattern:{x}?\\*:*", "b  x=v [a] pattern pattern:{x}?\\*:*")
	wantOrigins(t, m, "pattern:q*:")
	wantOrigins(t, m, "set:1-2-3", "a 1-2-3 [] set set:{id}", "b 2-3 p=1 [a] set set:{id}", "b 3 p=1-2 [a] set set:{id}")
	wantOrigins(t, m, "stamp:tag-1-2", "a 1-2 [] stamp tag-{id}", "b 2 p=1 [a] stamp tag-{id}")
}

// A search ends, and reports if it is incomplete.
func TestOriginsEnd(t *testing.T) {
	t.Parallel()
	m := mustParse(t, "version: 1\nentities: {a: {params: [b, c, d, e, f], keys: [\"{b}{c}{d}{e}{f}x\"]}}\n")
	if list, all := m.Origins(strings.Repeat("y", 500), 10); all || len(list) > 0 {
		t.Errorf("%d, all: %v", len(list), all)
	}
	if list, all := m.Origins(strings.Repeat("y", 50)+"x", 10); all || len(list) != 10 {
		t.Errorf("%d, all: %v", len(list), all)
	}
	// Two ways at each of sixty levels.
	var b strings.Builder
	b.WriteString("version: 1\nentities:\n  e0: {keys: [\"k\"]}\n")
	for i := 1; i <= 60; i++ {
		fmt.Fprintf(&b, "  e%d: {as: {e%d: \"x\", f%d: \"x\"}}\n  f%d: {as: {e%d: \"x\"}}\n", i, i-1, i, i, i-1)
	}
	if list, all := mustParse(t, b.String()).Origins("k", 1<<30); all || len(list) == 0 {
		t.Errorf("%d, all: %v", len(list), all)
	}
}

// If a row reaches a key, the row is among the origins of the key, and each origin reaches the key.
func TestOriginsAreWhatExpandMakes(t *testing.T) {
	t.Parallel()
	checked := 0
	for _, src := range goodMaps(t) {
		m, err := invalidation.Parse("map.yaml", src, func(name string) (string, bool) { return name, true })
		if err != nil {
			continue
		}
		r := rand.New(rand.NewPCG(1, 2))
		for _, name := range m.Entities()[:min(50, len(m.Entities()))] {
			for range 5 {
				checked += checkOrigins(t, m, randomRow(r, m, name))
			}
		}
	}
	if checked < 100 {
		t.Errorf("%d names checked", checked)
	}
}

func goodMaps(t *testing.T) (all [][]byte) {
	t.Helper()
	paths, err := filepath.Glob("testdata/*/*.txtar")
	if err != nil || len(paths) == 0 {
		t.Fatal(err)
	}
	for _, path := range paths {
		archive, err := txtar.ParseFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range archive.Files {
			if file.Name == "map.yaml" {
				all = append(all, file.Data)
			}
		}
	}
	return all
}

func randomRow(r *rand.Rand, m *invalidation.Map, entity string) invalidation.Row {
	values := []string{"1", "ab", "a:b", "*", "ä", `\`, "long-value-1"}
	pick := func() string { return values[r.IntN(len(values))] }
	row := invalidation.Row{Entity: entity, ID: pick()}
	for _, name := range m.Declared(entity) {
		row.Params = append(row.Params, listParam(name, pick(), pick()))
	}
	return row
}

// checkOrigins returns how many names of a row it has checked: three of each kind at most.
func checkOrigins(t *testing.T, m *invalidation.Map, row invalidation.Row) (checked int) {
	t.Helper()
	plan, err := m.Expand(row, nothingFound(m, row))
	if err != nil {
		return 0 // such as too many keys
	}
	names := slices.Concat(plan.Keys[:min(3, len(plan.Keys))], plan.Sets[:min(3, len(plan.Sets))])
	for _, pattern := range plan.Patterns[:min(3, len(plan.Patterns))] {
		names = append(names, invalidation.AnyName(pattern))
	}
	for _, key := range names {
		list, all := m.Origins(key, 100)
		if !all {
			continue
		}
		if !slices.ContainsFunc(list, func(o invalidation.Origin) bool { return covers(o, row) }) {
			t.Errorf("%+v reaches %q, and its origins are %+v", row, key, list)
		}
		for _, o := range list {
			if !utf8.ValidString(told(o)) {
				t.Errorf("%q has half a character of %q", told(o), key)
			}
			if !reaches(t, m, o, key) {
				t.Errorf("%s does not reach %q", told(o), key)
			}
		}
		checked++
	}
	return checked
}

// nothingFound answers what is asked of a row beyond what it gives.
func nothingFound(m *invalidation.Map, row invalidation.Row) *invalidation.Answers {
	answers := &invalidation.Answers{}
	for range m.Ranks() {
		needs, _ := m.Needs(row, answers) // Expand returns the error
		for _, n := range needs {
			answers.Put(n, nil)
		}
	}
	return answers
}

// covers reports whether a row is one of the origin's.
func covers(o invalidation.Origin, row invalidation.Row) bool {
	return o.Entity == row.Entity && (o.ID == "" || o.ID == row.ID) && !slices.ContainsFunc(o.Params, func(p invalidation.Param) bool {
		given, _ := row.Params.Get(p.Name)
		return slices.ContainsFunc(p.Values, func(v string) bool { return !slices.Contains(given.Values, v) })
	})
}

// reaches reports whether a row of an origin reaches a key, or is refused for something else.
func reaches(t *testing.T, m *invalidation.Map, o invalidation.Origin, key string) bool {
	t.Helper()
	row := invalidation.Row{Entity: o.Entity, ID: o.ID, Params: slices.Clone(o.Params)}
	if row.ID == "" {
		row.ID = "anything"
	}
	for _, name := range m.Declared(o.Entity) {
		if _, given := row.Params.Get(name); !given {
			row.Params = append(row.Params, listParam(name, "anything"))
		}
	}
	plan, err := m.Expand(row, nothingFound(m, row))
	if fault := (*invalidation.RowError)(nil); errors.As(err, &fault) {
		return fault.Reason == invalidation.PatternTooWide || fault.Reason == invalidation.TooManyKeys || fault.Reason == invalidation.BadParameter
	}
	return slices.Contains(plan.Keys, key) || slices.Contains(plan.Sets, key) || slices.ContainsFunc(plan.Patterns, func(pattern string) bool {
		g, err := protocol.CompileGlob(pattern)
		return err == nil && g.Match(key)
	})
}
