package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/unstale/unstale/internal/maptool"
)

const shippedCases = "../../mapping.cases.yaml"

// The cases of the shipped map hold, and touch all of it.
func TestMapTest(t *testing.T) {
	t.Parallel()
	r := call(t, nil, "map", "test", shippedCases, "--map", shippedMap, "--complete")
	if r.code != exitDone || !strings.HasSuffix(r.out, "10 cases, 0 failed; they touch 8 of 8 entities and 7 of 7 templates\n") || r.err != "" {
		t.Errorf("%+v", r)
	}
	var report maptool.CaseReport
	r = call(t, nil, "map", "test", shippedCases, "--map", shippedMap, "--json")
	if err := json.Unmarshal([]byte(r.out), &report); err != nil || r.code != exitDone || len(report.Cases) != 10 || report.Cases[1].Line != 10 || report.Templates != 7 || report.Untouched == nil {
		t.Errorf("%v: %+v", err, r)
	}
}

// Each expectation that a map does not meet is reported, with the place and the actual result.
func TestMapTestFails(t *testing.T) {
	t.Parallel()
	cases := writeFile(t, `cases:
  - row: {entity: product, id: 010, params: {category_id: [7, 9]}}
    reaches: ["zahraah:prod:product:10", "zahraah:prod:product:010", "zahraah:prod:category:9:list:*"]
    spares: ["zahraah:prod:category:9:list:p1", "zahraah:prod:category:8:list:p1"]
  - name: asked, and not told
    row: {entity: product, id: 1, params: {category_id: null}}
    reaches: ["zahraah:prod:product:1"]
  - row: {entity: product, id: 1, params: {category_id: 7}}
    lookups: {category_id: 7}
    reaches: "zahraah:prod:product:1"
  - row: {entity: product, id: &id 1}
    lookups: {category_id: }
    reaches: [*id]
  - row: {entity: coupon, id: "*"}
    refused: bad_parameter
  - row: {entity: coupon}
    refused: unknown_entity
`)
	r := call(t, nil, "map", "test", cases, "--map", shippedMap, "--complete")
	want := []string{
		"FAIL  product 010 (" + cases + ":2)",
		`it does not reach "zahraah:prod:product:10" (line 3); it reaches "zahraah:prod:category:7:list:*", "zahraah:prod:category:9:list:*", "zahraah:prod:product:010"`,
		`it reaches "zahraah:prod:category:9:list:p1" (line 4) by the pattern "{app}:{env}:category:{category_id}:list:*" of product`,
		"FAIL  asked, and not told (" + cases + ":5)", "lookups: {category_id: [7]}",
		"no lookup is asked for category_id (line 9)",
		"the row is not refused, wanted bad_parameter",
		`the map refuses the row: bad_parameter "id"`, "FAIL  product 1 (" + cases + ":11)",
		"6 cases, 6 failed; they touch 2 of 8 entities and 3 of 7 templates",
		"not touched: pricing pattern {app}:{env}:shipping:city:*", "not touched: variant\n",
	}
	for _, text := range want {
		if !strings.Contains(r.out, text) {
			t.Errorf("%s is not in\n%s", text, r.out)
		}
	}
	if strings.Contains(r.out, `category:8`) || strings.Contains(r.out, `not reach "zahraah:prod:product:010"`) {
		t.Errorf("what is as expected is told:\n%s", r.out)
	}
	if r.code != exitFail || !strings.Contains(r.err, "6 cases of 6 failed") || !strings.Contains(r.err, "no case touches 7 templates or entities of") {
		t.Errorf("%+v", r)
	}
}

// A file of cases that says nothing, or something else than it seems to, is refused with its place.
func TestMapTestRefuses(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                                      "there are no cases",
		"cases: []":                             "there are no cases",
		"cases: [{row: {entity: a, id: 1}}]":    "line 1: case 1 expects nothing",
		"cases: [{row: {id: 1}, reaches: [x]}]": "case 1 has no entity",
		"cases:\n  - row: {entity: a, id: 1, ids: 2}\n    reachs: [x]":              "line 2: unknown field ids; did you mean \"id\"?\n",
		"cases: [{row: {entity: a, id: [1]}, reaches: [x]}]":                        "line 1: wanted one text",
		"cases: [{row: {entity: a, id: 1, params: {p: {q: 1}}}, reaches: [x]}]":     "line 1: wanted a text, or a list of texts",
		"cases: [{row: {entity: a, id: 1, params: {p: [[1]]}}, reaches: [x]}]":      "line 1: wanted a text, or a list of texts",
		"cases: [{row: {entity: a, id: 1, params: {p: 1, p: 2}}, reaches: [x]}]":    `mapping key "p" already defined`,
		"cases: [{row: {entity: a, id: 1}, refused: nope}]":                         "the reasons are [unknown_entity",
		"cases: [{row: {entity: a, id: 1}, refused: unknown_entity, reaches: [x]}]": "a row that is refused makes nothing",
		"cases: [{row: {entity: a, id: 1}, reaches: [x]}]\n---\ncases: []":          "wanted one document",
		"cases: [{row: {entity: a, id: 1}, reaches: [x]":                            "line ",
		"cases: [{row: {entity: a, id: 1}, reaches: [x], spares: [~]}]":             "line 1: wanted a text, or a list of texts",
		"[]": "line 1: cannot unmarshal !!seq here",
	} {
		r := call(t, nil, "map", "test", writeFile(t, text), "--map", shippedMap)
		if r.code != exitFail || r.out != "" || !strings.Contains(r.err, want) || strings.Contains(r.err, "mapcases.") {
			t.Errorf("%s: wanted %s: %+v", text, want, r)
		}
	}
	if r := call(t, nil, "map", "test"); r.code != exitUsage {
		t.Errorf("%+v", r)
	}
	if r := call(t, nil, "map", "test", "no/such/file", "--map", shippedMap); r.code != exitFail || !strings.Contains(r.err, "no/such/file") {
		t.Errorf("%+v", r)
	}
}
