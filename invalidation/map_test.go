package invalidation_test

import (
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/unstale/unstale/invalidation"
	"github.com/unstale/unstale/protocol"
)

// prodEnv is the environment that the shipped map requires.
func prodEnv(name string) (string, bool) {
	if name == "APP_ENV" {
		return "prod", true
	}
	return "", false
}

// shipped returns the map at the top level, in the environment prod.
func shipped(t testing.TB) *invalidation.Map {
	t.Helper()
	src, err := os.ReadFile("../mapping.yaml")
	if err != nil {
		t.Fatal(err)
	}
	m, err := invalidation.Parse("mapping.yaml", src, prodEnv)
	if err != nil {
		t.Fatalf("the shipped map is broken:\n%v", err)
	}
	return m
}

// Each kind of row, one by one, on the shipped map.
func TestShippedMap(t *testing.T) {
	t.Parallel()
	m := shipped(t)
	lists := []string{"zahraah:prod:category:7:list:*", "zahraah:prod:category:9:list:*"}
	cities := []string{"zahraah:prod:shipping:city:*"}
	for entity, c := range map[string]struct {
		params string
		want   invalidation.Plan
	}{
		"product":    {`{"category_id":[7,9]}`, invalidation.Plan{Keys: []string{"zahraah:prod:product:42"}, Patterns: lists}},
		"variant":    {`{"product_id":5,"category_id":[7,9]}`, invalidation.Plan{Keys: []string{"zahraah:prod:product:5"}, Patterns: lists}},
		"inventory":  {`{"product_id":5,"category_id":[7,9]}`, invalidation.Plan{Keys: []string{"zahraah:prod:product:5"}, Patterns: lists}},
		"category":   {``, invalidation.Plan{Keys: []string{"zahraah:prod:home"}, Patterns: []string{"zahraah:prod:category:42:list:*"}}},
		"pricing":    {``, invalidation.Plan{Patterns: cities}},
		"price_rule": {``, invalidation.Plan{Patterns: cities}},
		"shipping":   {``, invalidation.Plan{Patterns: cities}},
		"coupon":     {``, invalidation.Plan{Keys: []string{"zahraah:prod:coupon:42"}}},
	} {
		params, err := invalidation.ParseParams([]byte(c.params))
		if err != nil {
			t.Fatal(err)
		}
		got, err := m.Expand(invalidation.Row{Entity: entity, ID: "42", Params: params}, nil)
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: got %+v, %v\nwant %+v", entity, got, err, c.want)
		}
	}
}

const plainMap = "version: 1\nvars: {app: shop}\nentities:\n  product:\n    keys: [\"{app}:product:{id}\"]\n"

// Formatting, comments, names of vars and the order of entities do not make another map; what keys
// are made of does.
func TestVersion(t *testing.T) {
	t.Parallel()
	base := mustParse(t, plainMap)
	if len(base.Version()) != 12 {
		t.Errorf("version %q", base.Version())
	}
	for name, src := range map[string]string{
		"comments":    "# a comment\n" + strings.ReplaceAll(plainMap, "\n", " # more\n"),
		"formatting":  "{version: 1, vars: {app: 'shop'}, entities: {product: {keys: ['{app}:product:{id}']}}}",
		"names":       strings.ReplaceAll(plainMap, "app", "shop_name"),
		"no var":      strings.ReplaceAll(strings.ReplaceAll(plainMap, "vars: {app: shop}\n", ""), "{app}", "shop"),
		"environment": strings.ReplaceAll(plainMap, "app: shop", `app: "${APP:-shop}"`),
		"defaults":    plainMap + "lease: 10s\nlimits: {params: 65536}\npublish: {format: event}\n",
	} {
		if got := mustParse(t, src).Version(); got != base.Version() {
			t.Errorf("%s: version %s, want %s", name, got, base.Version())
		}
	}
	for name, src := range map[string]string{
		"value":  strings.ReplaceAll(plainMap, "app: shop", "app: shop2"),
		"key":    strings.ReplaceAll(plainMap, ":product:{id}", ":products:{id}"),
		"entity": strings.ReplaceAll(plainMap, "  product:", "  products:"),
		"lease":  plainMap + "lease: 11s\n",
		"format": plainMap + "publish: {format: array}\n",
		"limit":  plainMap + "limits: {keys_per_row: 9}\n",
		"more":   plainMap + "  coupon: {keys: [\"c:{id}\"]}\n",
		"hold":   plainMap + "    hold: 1s\n",
		"repeat": plainMap + "    repeat: [1s]\n",
		"tag":    plainMap + "    tags: [a]\n",
		"param":  plainMap + "    params: [a]\n    sets: [\"x:{a}\"]\n",
	} {
		if got := mustParse(t, src).Version(); got == base.Version() {
			t.Errorf("%s: the version is the same", name)
		}
	}
	two := "version: 1\nentities:\n  a: {keys: [a]}\n  b: {keys: [b]}\n"
	owt := "version: 1\nentities:\n  b: {keys: [b]}\n  a: {keys: [a]}\n"
	if a, b := mustParse(t, two).Version(), mustParse(t, owt).Version(); a != b {
		t.Errorf("the order of entities makes another map: %s, %s", a, b)
	}
}

// The version has the value of a required variable, and not where it comes from or what else it may
// be.
func TestVersionOfRequiredVariable(t *testing.T) {
	t.Parallel()
	src := strings.Replace(plainMap, "app: shop", "app: {from: APP, one_of: [shop, store]}", 1)
	for value, want := range map[string]string{
		"shop":  mustParse(t, plainMap).Version(),
		"store": mustParse(t, strings.Replace(plainMap, "shop", "store", 1)).Version(),
	} {
		m, err := invalidation.Parse("map.yaml", []byte(src), func(string) (string, bool) { return value, true })
		if err != nil || m.Version() != want {
			t.Errorf("%s: %v", value, err)
		}
	}
}

func TestSettings(t *testing.T) {
	t.Parallel()
	m := mustParse(t, plainMap)
	if m.Channel() != "cache:invalidate" || m.Format() != protocol.FormatEvent || m.Lease() != 10*time.Second || m.Limits() != (invalidation.Limits{65536, 10000, 8}) {
		t.Errorf("defaults: %s %s %v %+v", m.Channel(), m.Format(), m.Lease(), m.Limits())
	}
	m = mustParse(t, plainMap+"publish: {channel: x, format: array}\nlease: 1m30s\nlimits: {params: 1 MiB, keys_per_row: 7, pattern_prefix: 1}\n")
	if m.Channel() != "x" || m.Format() != protocol.FormatArray || m.Lease() != 90*time.Second || m.Limits() != (invalidation.Limits{1 << 20, 7, 1}) {
		t.Errorf("settings: %s %s %v %+v", m.Channel(), m.Format(), m.Lease(), m.Limits())
	}
	m.Entities()[0] = "x"
	if m.Entities()[0] != "product" {
		t.Error("a caller can change the map")
	}
}

// As in a shell, a default replaces a variable that is unset or empty.
func TestEnvironment(t *testing.T) {
	t.Parallel()
	src := "version: 1\nvars: {a: \"${A:-x}\", b: \"-${B}-${A}-\"}\nentities:\n  p: {keys: [\"{a}:{b}:{id}\"]}\n"
	for _, c := range []struct{ a, want string }{{"1", "1:-2-1-:5"}, {"", "x:-2--:5"}} {
		env := func(name string) (string, bool) { return map[string]string{"A": c.a, "B": "2"}[name], true }
		m, err := invalidation.Parse("map.yaml", []byte(src), env)
		if err != nil {
			t.Fatal(err)
		}
		plan, err := m.Expand(invalidation.Row{Entity: "p", ID: "5"}, nil)
		if err != nil || !slices.Equal(plan.Keys, []string{c.want}) {
			t.Errorf("A=%q: %v, %v, want %q", c.a, plan.Keys, err, c.want)
		}
	}
}

// Many goroutines can use a Map concurrently.
func TestConcurrentUse(t *testing.T) {
	t.Parallel()
	m := shipped(t)
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for i := range 200 {
				id := strconv.Itoa(i)
				row := invalidation.Row{Entity: "variant", ID: "1", Params: invalidation.Params{listParam("product_id", id, id+"0")}}
				needs, err := m.Needs(row, nil)
				if err != nil || len(needs) != 2 {
					t.Error(needs, err)
					return
				}
				var answers invalidation.Answers
				for _, n := range needs {
					answers.Put(n, []string{id})
				}
				if plan, err := m.Expand(row, &answers); err != nil || plan.Len() != 3 {
					t.Error(plan, err)
					return
				}
			}
		})
	}
	group.Wait()
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	a, b := &invalidation.Lookup{}, &invalidation.Lookup{}
	var answers invalidation.Answers
	if _, ok := answers.Get(invalidation.Need{Lookup: a, By: []string{"1"}}); ok {
		t.Error("the zero value knows something")
	}
	if _, ok := (*invalidation.Answers)(nil).Get(invalidation.Need{Lookup: a}); ok {
		t.Error("nil knows something")
	}
	answers.Put(invalidation.Need{a, []string{"1", "23"}}, []string{"x"})
	answers.Put(invalidation.Need{a, []string{"12", "3"}}, nil)
	for _, c := range []struct {
		need  invalidation.Need
		want  int
		known bool
	}{
		{invalidation.Need{a, []string{"1", "23"}}, 1, true}, {invalidation.Need{a, []string{"12", "3"}}, 0, true},
		{invalidation.Need{a, []string{"123", ""}}, 0, false}, {invalidation.Need{b, []string{"1", "23"}}, 0, false},
	} {
		if values, known := answers.Get(c.need); known != c.known || len(values) != c.want {
			t.Errorf("%v: %v, %v", c.need, values, known)
		}
	}
}
