package maptool_test

import (
	"bytes"
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/unstale/unstale/internal/maptool"
	"github.com/unstale/unstale/invalidation"
)

var update = flag.Bool("update", false, "rewrite testdata")

func parse(t *testing.T, text string) *maptool.Names {
	t.Helper()
	m, err := invalidation.ParseNames("map.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return maptool.NamesOf(m)
}

// Types, declared values, variables, tags and comments of a map, as Go. examples/shopcache compiles
// the code of the shipped map.
func TestGo(t *testing.T) {
	t.Parallel()
	golden(t, "testdata/all.yaml", "testdata/all.go.txt", func(n *maptool.Names) ([]byte, error) { return maptool.GenerateGo(n, "all", "all.yaml") })
}

// golden compares generated code with a file, twice.
func golden(t *testing.T, yaml, file string, generate func(*maptool.Names) ([]byte, error)) {
	t.Helper()
	src, err := os.ReadFile(yaml)
	if err != nil {
		t.Fatal(err)
	}
	got, err := generate(parse(t, string(src)))
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(file, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%v; go test -update, and look at the difference:\n%s", err, got)
	}
	again, err := generate(parse(t, string(src)))
	if err != nil || !bytes.Equal(got, again) {
		t.Errorf("a second time the text differs: %v", err)
	}
}

// A name that Go cannot have, and two names that become one, are errors that name both.
func TestGoRefuses(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		twoEntities + `reads: { page_url: { key: "a:{product_id}", ttl: 1m }, pageURL: { key: "b:{x}", ttl: 1m, of: { x: product_id } } }`: "the read page_url and the read pageURL both have the Go name PageURL",
		twoEntities + `reads: { map: { key: "a:{product_id}", ttl: 1m } }`:                                                                 "the variables of the map and the read map both have the Go name Map",
	} {
		if code, err := maptool.GenerateGo(parse(t, text), "shop", "map.yaml"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\ngot %v, want %q\n%s", text, err, want, code)
		}
	}
	if _, err := maptool.GenerateGo(parse(t, twoEntities), "shop-cache", "map.yaml"); err == nil || !strings.Contains(err.Error(), `--package "shop-cache"`) {
		t.Errorf("%v", err)
	}
}

// Holes named like keywords, packages and variables of the generated code get other names, and the
// result is valid Go.
func TestGoNames(t *testing.T) {
	t.Parallel()
	names := []string{"type", "cache", "v", "k", "t0", "time", "URL", "url_x", "string"}
	key := "a"
	for _, name := range names {
		key += ":{" + name + "}"
	}
	code, err := maptool.GenerateGo(parse(t, "version: 1\nentities: { product: { keys: [\"x:{id}\"] } }\nreads: { p: { key: \""+key+"\", ttl: 1m } }\n"), "shop", "map.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if want := "func P(typeValue string, cacheValue string, vValue string, kValue string, t0Value string, timeValue string, url string, urlX string, stringValue string)"; !bytes.Contains(code, []byte(want)) {
		t.Errorf("want %s in\n%s", want, code)
	}
}

// Required params are arguments with names of their own. A param that some rows do not need is a
// field: one that only a lookup needs, or only a template with an optional name.
func TestRequiredParams(t *testing.T) {
	t.Parallel()
	const head = "version: 1\nparams:\n  category_id: {lookup: {by: [brand_id], sql: 'SELECT brand_id, category_id FROM t WHERE brand_id IN (?)'}}\n  color: {optional: true}\n"
	got, err := maptool.GenerateGo(parse(t, head+`entities:
  page:
    params: [any, ID, brand_id, category_id, color, size]
    keys: ["page:{id}:{any}:{ID}", "cat:{category_id}", "color:{color}:{size}"]
  part:
    params: [page_id, any, ID]
    as: {page: "{page_id}"}
`), "all", "all.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"func InvalidatePage(id string, idValue []string, anyValue []string, params PageParams) outbox.Invalidation",
		`Required: []string{"ID", "any"}`, "BrandID []string", "func InvalidatePart(id string, idValue []string, anyValue []string, pageID []string",
	} {
		if flat := strings.Join(strings.Fields(string(got)), " "); !strings.Contains(flat, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	for params, want := range map[string]string{"type, type_value": "both have the Go name typeValue", "_": "has no Go name"} {
		var holes string
		for name := range strings.SplitSeq(params, ", ") {
			holes += ":{" + name + "}"
		}
		_, err := maptool.GenerateGo(parse(t, "version: 1\nentities:\n  page: {params: ["+params+"], keys: [\"page"+holes+"\"]}\n"), "all", "all.yaml")
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", params, err)
		}
	}
}
