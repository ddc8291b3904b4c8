package invalidation_test

import (
	"bytes"
	"encoding/json"
	"os"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/unstale/unstale/invalidation"
	"go.yaml.in/yaml/v3"
)

func compiledSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(invalidation.Schema()))
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource("mapping.schema.json", doc); err != nil {
		t.Fatal(err)
	}
	compiled, err := compiler.Compile("mapping.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return compiled
}

// instance reads YAML as an editor would: as JSON values.
func instance(t *testing.T, src []byte) any {
	t.Helper()
	var value any
	if err := yaml.Unmarshal(src, &value); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

// The schema accepts every map that Parse accepts.
func TestSchemaAcceptsGoodMaps(t *testing.T) {
	t.Parallel()
	schema := compiledSchema(t)
	src, err := os.ReadFile("../mapping.yaml")
	if err != nil {
		t.Fatal(err)
	}
	good := map[string][]byte{"mapping.yaml": src}
	for _, f := range textFiles(t, "testdata/expand/*.txtar") {
		if src, ok := f.section("map.yaml"); ok && f.path != "testdata/expand/source_text.txtar" {
			good[f.path] = []byte(src)
		}
	}
	for name, src := range good {
		if err := schema.Validate(instance(t, src)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// An editor shows these as mistakes.
func TestSchemaRefuses(t *testing.T) {
	t.Parallel()
	schema := compiledSchema(t)
	for name, src := range map[string]string{
		"unknown field":               "version: 1\nentitys: {}\nentities: {p: {keys: [a]}}",
		"unknown field of publish":    "version: 1\npublish: {chanel: x}\nentities: {p: {keys: [a]}}",
		"unknown field of limits":     "version: 1\nlimits: {param: 1}\nentities: {p: {keys: [a]}}",
		"unknown field of a param":    "version: 1\nparams: {a: {optionl: true}}\nentities: {p: {keys: [a]}}",
		"unknown field of a lookup":   "version: 1\nparams: {a: {lookup: {by: [id], sql: 'SELECT ?', x: 1}}}\nentities: {p: {keys: [a]}}",
		"a lookup that is always yes": "version: 1\nparams: {a: {lookup: {by: [id], sql: 'SELECT ?', always: yes}}}\nentities: {p: {keys: [a]}}",
		"values that go with one":     "version: 1\nparams: {a: {with: b}}\nentities: {p: {keys: [a]}}",
		"a mapping as default":        "version: 1\nparams: {a: {default: {b: c}}}\nentities: {p: {keys: [a]}}",
		"an enumeration of one word":  "version: 1\neach: {a: b}\nentities: {p: {keys: [a]}}",
		"an entity's lookup of no by": "version: 1\nentities: {p: {params: [a], lookups: {a: {sql: 'SELECT ?'}}, keys: [a]}}",
		"unknown field of an entity":  "version: 1\nentities: {p: {keys: [a], kyes: [b]}}",
		"no version":                  "entities: {p: {keys: [a]}}",
		"no entities":                 "version: 1",
		"an entity without keys":      "version: 1\nentities: {p: {params: [a]}}",
		"an empty template":           "version: 1\nentities: {p: {keys: ['']}}",
		"a lease without unit":        "version: 1\nlease: 10\nentities: {p: {keys: [a]}}",
		"a size in KB":                "version: 1\nlimits: {params: 64KB}\nentities: {p: {keys: [a]}}",
		"unknown field of a capture":  "version: 1\nentities: {p: {keys: [a]}}\ncapture: {t: {entity: p, id: id, when: x}}",
		"a capture without an id":     "version: 1\nentities: {p: {keys: [a]}}\ncapture: {t: {entity: p}}",
		"an unknown operation":        "version: 1\nentities: {p: {keys: [a]}}\ncapture: {t: [{entity: p, id: id, on: [upsert]}]}",
		"a var of no variable":        "version: 1\nvars: {a: {one_of: [b]}}\nentities: {p: {keys: ['{a}']}}",
		"unknown field of a var":      "version: 1\nvars: {a: {from: A, default: b}}\nentities: {p: {keys: ['{a}']}}",
		"keys that are not a list":    "version: 1\nentities: {p: {keys: a}}",
	} {
		if err := schema.Validate(instance(t, []byte(src))); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestSchemaIsACopy(t *testing.T) {
	t.Parallel()
	invalidation.Schema()[0] = 'x'
	if invalidation.Schema()[0] != '{' {
		t.Error("a caller can change the schema")
	}
}
