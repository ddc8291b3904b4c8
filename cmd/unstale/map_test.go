package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/unstale/unstale/internal/testenv"
)

const shippedMap = "../../mapping.yaml"

func writeFile(t testing.TB, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "map.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestMapCheck(t *testing.T) {
	t.Parallel()
	good := call(t, nil, "map", "check", shippedMap)
	if good.code != exitDone || !strings.Contains(good.out, "is good: version ") || good.err != "" {
		t.Errorf("the shipped map: %+v", good)
	}
	for value, want := range map[string]string{"": "APP_ENV is not set or is empty", "production": `APP_ENV is "production", which one_of`} {
		r := call(t, map[string]string{"APP_ENV": value}, "map", "check", shippedMap)
		if r.code != exitFail || !strings.Contains(r.err, want) || !strings.Contains(r.err, `set APP_ENV to one of "dev", "staging" and "prod"`) {
			t.Errorf("APP_ENV=%s: %+v", value, r)
		}
	}
	bad := writeFile(t, "version: 1\nentities:\n  product:\n    keys:\n      - {id}\n      - \"y:{nope}\"\n  coupon: {keys: [\"c:*\"]}\n")
	r := call(t, nil, "map", "check", bad)
	if r.code != exitFail || r.out != "" {
		t.Errorf("a bad map: %+v", r)
	}
	for _, place := range []string{bad + ":5:9: ", bad + ":6:", bad + ":7:", "double quotes", "3 faults"} {
		if !strings.Contains(r.err, place) {
			t.Errorf("%s is not in:\n%s", place, r.err)
		}
	}
	var object struct {
		OK     bool
		Faults []place
	}
	r = call(t, nil, "map", "check", bad, "--json")
	if err := json.Unmarshal([]byte(r.out), &object); err != nil || r.code != exitFail || object.OK || len(object.Faults) != 3 || object.Faults[0].Line != 5 {
		t.Errorf("%v: %+v", err, r)
	}
	if r := call(t, nil, "map", "check", "no/such/file"); r.code != exitFail || !strings.Contains(r.err, "no/such/file") {
		t.Errorf("a missing file: %+v", r)
	}
}

// A map whose reads no entity covers fails the check; a worker can use it.
func TestMapCheckReads(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(shippedMap)
	if err != nil {
		t.Fatal(err)
	}
	if good := call(t, nil, "map", "check", shippedMap); !strings.Contains(good.out, "reads     product_page, category_list, home") {
		t.Errorf("the shipped map: %+v", good)
	}
	typo := writeFile(t, strings.Replace(string(text), "{app}:{env}:coupon:{coupon_id}", "{app}:{env}:coupons:{coupon_id}", 1))
	r := call(t, nil, "map", "check", typo)
	for _, want := range []string{"coupon does not make coupon stale", "reaches no read", "2 faults"} {
		if r.code != exitFail || !strings.Contains(r.err, want) {
			t.Errorf("wanted %q: %+v", want, r)
		}
	}
	if r := call(t, nil, "map", "explain", "--map", typo, "--entity", "coupon", "--id", "X"); r.code != exitDone {
		t.Errorf("a map that does not cover its reads: %+v", r)
	}
}

// A pattern of the prefix alone fails the check; a worker can use it.
func TestMapCheckEverything(t *testing.T) {
	t.Parallel()
	wide := writeFile(t, "version: 1\nvars: {app: zahraah, env: dev}\nentities:\n  deploy: {patterns: [\"{app}:{env}:*\"]}\n")
	if r := call(t, nil, "map", "check", wide); r.code != exitFail || !strings.Contains(r.err, "everything: true in the entity deploy") {
		t.Errorf("%+v", r)
	}
	if r := call(t, nil, "map", "explain", "--map", wide, "--entity", "deploy", "--id", "1"); r.code != exitDone {
		t.Errorf("%+v", r)
	}
}

// With --redis-url, and only then, a check counts the current matches of the patterns.
func TestMapCheckEstimates(t *testing.T) {
	t.Parallel()
	r := testenv.Redis(t)
	for _, key := range []string{"zahraah:prod:category:7:list:1", "zahraah:prod:category:7:list:2", "other", "another"} {
		if err := r.Client.Set(t.Context(), key, "x", 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	got := call(t, nil, "map", "check", shippedMap, "--redis-url", r.URL)
	if got.code != exitDone || !strings.Contains(got.out, "keyspace: 4 keys, 4 of them looked at\n") ||
		!strings.Contains(got.out, "  2 keys (50 %)  category  {app}:{env}:category:{id}:list:*\n") {
		t.Errorf("%+v", got)
	}
	var object struct {
		OK       bool
		Keyspace struct {
			Keys     int64
			Patterns []struct {
				Entity, Pattern, Glob string
				Matched               int64
			}
		}
	}
	got = call(t, nil, "map", "check", shippedMap, "--redis-url", r.URL, "--json")
	if err := json.Unmarshal([]byte(got.out), &object); err != nil || object.Keyspace.Keys != 4 || len(object.Keyspace.Patterns) == 0 ||
		object.Keyspace.Patterns[0].Matched != 2 || object.Keyspace.Patterns[0].Glob != "zahraah:prod:category:*:list:*" {
		t.Errorf("%v: %+v", err, got)
	}
	if got := call(t, map[string]string{"REDIS_URL": "redis://127.0.0.1:1"}, "map", "check", shippedMap); got.code != exitDone || strings.Contains(got.out, "keyspace") {
		t.Errorf("it asked a server by itself: %+v", got)
	}
	if got := call(t, nil, "map", "check", shippedMap, "--redis-url", "redis://127.0.0.1:1"); got.code != exitFail || !strings.Contains(got.err, "estimate what the patterns match") ||
		!strings.Contains(got.out, "is good: version") {
		t.Errorf("%+v", got)
	}
}

// explain shows what a row would invalidate without a server; the object always has its lists.
func TestMapExplain(t *testing.T) {
	t.Parallel()
	r := call(t, nil, "map", "explain", "--map", shippedMap, "--entity", "product", "--id", "42",
		"--param", "category_id=9,1", "--param", "category_id=7", "--param", "colour=red", "--json")
	var got map[string]any
	if err := json.Unmarshal([]byte(r.out), &got); err != nil || r.code != exitDone {
		t.Fatalf("%v: %+v", err, r)
	}
	for name, want := range map[string]any{
		"keys":     []any{"zahraah:prod:product:42"},
		"patterns": []any{"zahraah:prod:category:7:list:*", "zahraah:prod:category:9,1:list:*"},
		"sets":     []any{}, "repeat": []any{}, "ignored_params": []any{"colour"},
	} {
		if !reflect.DeepEqual(got[name], want) {
			t.Errorf("%s: %v, wanted %v", name, got[name], want)
		}
	}
	full := writeFile(t, `
version: 1
entities:
  page:
    keys: ["b:{id}", "a:{id}"]
    tags: ["t:{id}"]
    sets: ["tag:{id}"]
    repeat: [2s, 500ms]
    hold: 2s
`)
	r = call(t, nil, "map", "explain", "--map", full, "--entity", "page", "--id", "x", "--json")
	if err := json.Unmarshal([]byte(r.out), &got); err != nil || r.code != exitDone {
		t.Fatalf("%v: %+v", err, r)
	}
	for name, want := range map[string]any{
		"keys": []any{"a:x", "b:x", "stamp:t:x"}, "patterns": []any{}, "sets": []any{"tag:x"}, "repeat": []any{"500ms", "2s"}, "hold": "2s",
	} {
		if !reflect.DeepEqual(got[name], want) {
			t.Errorf("%s: %v, wanted %v", name, got[name], want)
		}
	}
	if r := call(t, nil, "map", "explain", "--map", full, "--entity", "page", "--id", "x"); !strings.HasPrefix(r.out, "key      a:x\nkey      b:x\nstamp    t:x\nset ") {
		t.Errorf("a tag is shown as a key: %+v", r)
	}
}

// A name that is nearly one of the map's is asked about.
func TestMapNamesNearby(t *testing.T) {
	t.Parallel()
	cases := func(text string) string { return writeFile(t, "cases:\n"+text) }
	for _, c := range []struct {
		want string
		args []string
	}{
		{`has no entity "prodcut"; did you mean "product"?`, []string{"map", "explain", "--map", shippedMap, "--entity", "prodcut"}},
		{`has no entity "prodcut"; did you mean "product"?`, []string{"map", "explain", "--map", shippedMap, "--entity", "prodcut", "--id", "4"}},
		{`has no entity "planet"; it has category, coupon, `, []string{"map", "explain", "--map", shippedMap, "--entity", "planet", "--id", "4"}},
		{`parameter prodct_id is not declared for variant; did you mean "product_id"?`, []string{"map", "explain", "--map", shippedMap, "--entity", "variant", "--id", "4", "--param", "prodct_id=3"}},
		{`ignored  parameter categry_id is not declared for product; did you mean "category_id"?`, []string{"map", "explain", "--map", shippedMap, "--entity", "product", "--id", "4", "--param", "categry_id=3", "--param", "category_id=3"}},
		{`line 2: unknown field reach; did you mean "reaches"?`, []string{"map", "test", "--map", shippedMap, cases("  - {row: {entity: product, id: 1}, reach: [x]}\n")}},
		{`line 2: unknown field parms; did you mean "params"?`, []string{"map", "test", "--map", shippedMap, cases("  - {row: {entity: product, id: 1, parms: {}}, reaches: [x]}\n")}},
		{`which is not a reason of a map; did you mean "missing_parameter"?`, []string{"map", "test", "--map", shippedMap, cases("  - {row: {entity: product, id: 1}, refused: missing_param}\n")}},
		{`the map does not have the entity "prodct"; did you mean "product"?`, []string{"map", "test", "--map", shippedMap, cases("  - {row: {entity: prodct, id: 1}, reaches: [x]}\n")}},
		{`the map does not have the parameter "categry_id"; did you mean "category_id"?`, []string{"map", "test", "--map", shippedMap, cases("  - {row: {entity: product, id: 1, params: {categry_id: 7}}, reaches: [x]}\n")}},
		{`the map does not have the lookup of "categry_id"; did you mean "category_id"?`, []string{"map", "test", "--map", shippedMap, cases("  - {row: {entity: product, id: 1}, lookups: {categry_id: 7}, reaches: [x]}\n")}},
		{`there is no check "reech"; did you mean "reach"?`, []string{"doctor", "--check", "reech"}},
	} {
		if r := call(t, nil, c.args...); !strings.Contains(r.err+r.out, c.want) {
			t.Errorf("%q: wanted %s: %+v", c.args, c.want, r)
		}
	}
}

// A row that the map refuses: exit 1 and the reason. A lookup that is not given: run on a server,
// or named.
func TestMapExplainRefuses(t *testing.T) {
	t.Parallel()
	lookup := writeFile(t, `
version: 1
params:
  category_id: {lookup: {by: [id], sql: "SELECT product_id, category_id FROM product_categories WHERE product_id IN (?)"}}
entities:
  product: {params: [category_id], keys: ["shop:category:{category_id}"]}
`)
	for want, args := range map[string][]string{
		"unknown_entity":                  {"--map", lookup, "--entity", "planet", "--id", "1"},
		`missing_parameter "category_id"`: {"--map", lookup, "--entity", "product", "--id", "1"},
	} {
		r := call(t, nil, append([]string{"map", "explain"}, args...)...)
		if r.code != exitFail || !strings.Contains(r.err, want) || r.out != "" {
			t.Errorf("wanted %s: %+v", want, r)
		}
	}
	for _, args := range [][]string{
		{}, {"--id", "1"}, {"--entity", "product", "--id", ""}, {"--entity", "product", "--param", "a=b"}, {"--entity", "product", "--id", "1", "--param", "novalue"}, {"--nope"}, {"x"},
	} {
		if r := call(t, nil, append([]string{"map", "explain", "--map", lookup}, args...)...); r.code != exitUsage {
			t.Errorf("%q: %+v", args, r)
		}
	}
	env := testenv.MySQL(t)
	for _, stmt := range []string{
		"CREATE TABLE product_categories (product_id INT NOT NULL, category_id INT NOT NULL)",
		"INSERT INTO product_categories VALUES (1, 7), (1, 8), (2, 9)",
	} {
		if _, err := env.DB.Exec(stmt); err != nil {
			t.Fatal(err)
		}
	}
	r := call(t, map[string]string{"MYSQL_DSN": env.DSN}, "map", "explain", "--map", lookup, "--entity", "product", "--id", "1")
	if want := "key      shop:category:7\nkey      shop:category:8\n"; r.code != exitDone || r.out != want {
		t.Errorf("with a server: %+v", r)
	}
}

// Explain lists the reads that the names of the row reach, also through other entities.
func TestMapExplainReads(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args  []string
		want  string
		reads []string
	}{
		{[]string{"variant", "--id", "9", "--param", "product_id=42", "--param", "category_id=7"}, "key      zahraah:prod:product:42\npattern  zahraah:prod:category:7:list:*\nread     product_page\nread     category_list\n", []string{"product_page", "category_list"}},
		{[]string{"price_rule", "--id", "1"}, "pattern  zahraah:prod:shipping:city:*\nread     shipping_city\n", []string{"shipping_city"}},
	} {
		args := append([]string{"map", "explain", "--map", shippedMap, "--entity"}, c.args...)
		if r := call(t, nil, args...); r.code != exitDone || r.out != c.want {
			t.Errorf("%+v\nwanted\n%s", r, c.want)
		}
		var object explanation
		r := call(t, nil, append(args, "--json")...)
		if err := json.Unmarshal([]byte(r.out), &object); err != nil || !reflect.DeepEqual(object.Reads, c.reads) {
			t.Errorf("%v: %+v", err, r)
		}
		// an entity lists those of all its rows
		all := []string{"map", "explain", "--map", shippedMap, "--entity", c.args[0]}
		text := strings.Join(strings.Fields(call(t, nil, all...).out), " ")
		if !strings.Contains(text, " read "+strings.Join(c.reads, " read ")+" {id} ") {
			t.Error(text)
		}
		var entity description
		r = call(t, nil, append(all, "--json")...)
		if err := json.Unmarshal([]byte(r.out), &entity); err != nil || !reflect.DeepEqual(entity.Reads, c.reads) {
			t.Errorf("%v: %+v", err, r)
		}
	}
}

// Without an id, explain shows what any row of the entity would invalidate, and of what.
func TestMapExplainEntity(t *testing.T) {
	t.Parallel()
	file := writeFile(t, `
version: 1
vars: {app: shop}
params:
  category_id: {lookup: {by: [id], sql: "SELECT a,  b FROM t WHERE a IN (?)"}}
  locale: {optional: true}
entities:
  product:
    params: [category_id, locale, price]
    each: {page: 1..3}
    keys: ["{app}:{id}:{locale}:{price}"]
    patterns: ["{app}:list:{category_id}:p{page}:*"]
    sets: ["set:{id}"]
    tags: ["tag-{id}"]
    repeat: [5s]
    hold: 2s
  variant: {params: [product_id], as: {product: "{product_id}"}}
`)
	r := call(t, nil, "map", "explain", "--map", file, "--entity", "product")
	want := `key            {app}:{id}:{locale}:{price}
stamp          tag-{id}
pattern        {app}:list:{category_id}:p{page}:*
set            set:{id}
repeat         5s
hold           2s
{id}           the row's id
{locale}       from the row; without it, what uses it makes nothing
{price}        from the row, which must give it
{category_id}  from the row, or looked up by id: SELECT a, b FROM t WHERE a IN (?)
{page}         each of 1, 2, 3
`
	if r.code != exitDone || r.out != want {
		t.Errorf("%+v\nwanted\n%s", r, want)
	}
	if r := call(t, nil, "map", "explain", "--map", file, "--entity", "variant"); r.code != exitDone || !strings.HasPrefix(r.out, "as            product, with the id {product_id}\n") {
		t.Errorf("%+v", r)
	}
	var object description
	r = call(t, nil, "map", "explain", "--map", file, "--entity", "product", "--json")
	if err := json.Unmarshal([]byte(r.out), &object); err != nil || len(object.Templates) != 4 || len(object.Names) != 5 || len(object.Params) != 3 ||
		object.Names[3].From != "lookup" || object.Names[4].From != "each" || !object.Names[1].Optional || object.Hold != "2s" {
		t.Errorf("%v: %+v", err, r)
	}
	if r := call(t, nil, "map", "explain", "--map", file, "--entity", "planet"); r.code != exitFail || !strings.Contains(r.err, "it has product, variant") {
		t.Errorf("%+v", r)
	}
}

func TestMapWho(t *testing.T) {
	t.Parallel()
	r := call(t, nil, "map", "who", "--map", shippedMap, "zahraah:prod:category:7:list:p1:sort:new")
	want := `category   id=7                                pattern {app}:{env}:category:{id}:list:*
product    category_id=7 (given or looked up)  pattern {app}:{env}:category:{category_id}:list:*
inventory  category_id=7 (given or looked up)  pattern {app}:{env}:category:{category_id}:list:*, as product
variant    category_id=7 (given or looked up)  pattern {app}:{env}:category:{category_id}:list:*, as product
read: category_list, key {app}:{env}:category:{category_id}:list:p{page}:sort:{sort}
`
	if r.code != exitDone || r.out != want {
		t.Errorf("%+v\nwanted\n%s", r, want)
	}
	for key, want := range map[string]string{
		"zahraah:prod:category:7:list:p1":                "read: none has this key\n",
		"zahraah:prod:category:7:list:p1:sort:price:asc": ":sort:{sort}, if a value contains a colon\n",
	} {
		if r := call(t, nil, "map", "who", "--map", shippedMap, key); r.code != exitDone || !strings.HasSuffix(r.out, want) {
			t.Errorf("%s: %+v", key, r)
		}
	}
	if r := call(t, nil, "map", "who", "--map", shippedMap, "zahraah:prod:home"); r.code != exitDone || r.out != "category  any id  key {app}:{env}:home\nread: home, key {app}:{env}:home\n" {
		t.Errorf("%+v", r)
	}
	var object origins
	r = call(t, nil, "map", "who", "--map", shippedMap, "zahraah:prod:product:4\n2", "--limit", "2", "--json")
	if err := json.Unmarshal([]byte(r.out), &object); err != nil || r.code != exitDone || object.Key != "zahraah:prod:product:4\n2" || object.Complete || len(object.Origins) != 2 ||
		object.Origins[0].ID != "4\n2" || !reflect.DeepEqual(object.Origins[1].Params, map[string][]string{"product_id": {"4\n2"}}) || !reflect.DeepEqual(object.Origins[1].Via, []string{"product"}) {
		t.Errorf("%v: %+v", err, r)
	}
	if r := call(t, nil, "map", "who", "--map", shippedMap, "session:1"); r.code != exitFail || r.out != "" || !strings.Contains(r.err, "no row of "+shippedMap+" reaches session:1") {
		t.Errorf("%+v", r)
	}
	for _, args := range [][]string{{}, {""}, {"a", "b"}, {"a", "--limit", "0"}} {
		if r := call(t, nil, append([]string{"map", "who", "--map", shippedMap}, args...)...); r.code != exitUsage {
			t.Errorf("%q: %+v", args, r)
		}
	}
}

func TestMapSchema(t *testing.T) {
	t.Parallel()
	r := call(t, nil, "map", "schema")
	if r.code != exitDone || !json.Valid([]byte(r.out)) {
		t.Errorf("%+v", r)
	}
}
