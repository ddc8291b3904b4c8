package invalidation_test

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/unstale/unstale/invalidation"
	"github.com/unstale/unstale/protocol"
)

// addMaps adds every map of the test data and the shipped one to the corpus.
func addMaps(f *testing.F) {
	f.Helper()
	paths, err := filepath.Glob("testdata/*/*.txtar")
	if err != nil || len(paths) == 0 {
		f.Fatal(err)
	}
	for _, path := range paths {
		archive, err := txtar.ParseFile(path)
		if err != nil {
			f.Fatal(err)
		}
		for _, file := range archive.Files {
			if file.Name == "map.yaml" {
				f.Add(file.Data)
			}
		}
	}
	src, err := os.ReadFile("../mapping.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(src)
	f.Add([]byte(grammarMap))
}

// grammarMap uses what lookups, groups, defaults and shared enumerations there are, in each other's
// company.
const grammarMap = `
version: 1
vars: {app: [shop, "b"], env: {from: ENV, one_of: [ENV, x]}}
each: {page: 1..3}
params:
  m: {lookup: {by: [id], sql: "SELECT a, b FROM t WHERE a IN (?)"}}
  c: {lookup: {by: [m, given], always: true, sql: "WITH w AS (SELECT 1) SELECT a, b, c FROM t WHERE (a, b) IN (?)"}}
  o: {optional: true, with: [p, q]}
  s: {optional: true, with: [r], lookup: {by: [s], always: true, sql: "SELECT a, b, c FROM t WHERE a IN (?)"}}
  g: {with: [h], lookup: {by: [c, id], sql: "SELECT a, b, c, d FROM t WHERE (a, b) IN (?)"}}
  d: {default: [x, y]}
  e: {default: z, lookup: {by: [e], always: true, sql: "SELECT a, b FROM t WHERE a IN (?)"}}
entities:
  one: {params: [m, given, c, o, p, g, h], as: {two: "{h}{given}", four: "{given}"}, keys: ["{app}{o}:{p}:{o}:{page}"], patterns: ["{app}:long:{g}{h}{g}:*"]}
  two: {params: [m, c, given, s, r, d], lookups: {m: {by: [given], always: true, sql: "SELECT b, a FROM t WHERE b IN (?)"}}, as: {three: "{d}"}, each: {page: [z]}, sets: ["{env}{r}:{s}:{m}:{page}"], tags: ["{r}{c}"]}
  three: {params: [e, o, q], keys: ["{q}:{o}", "{e}:{id}"], as: {four: "{e}"}}
  four: {params: [c, m, given], keys: ["four:{c}"], patterns: ["{app}:{env}:****"], everything: true}
`

// Any bytes are a map or a list of faults, and always the same; a map expands any row within its
// limits.
func FuzzParse(f *testing.F) {
	addMaps(f)
	env := func(name string) (string, bool) {
		if value, set := prodEnv(name); set {
			return value, set
		}
		return name, name != "UNSET"
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		m, err := invalidation.Parse("map.yaml", src, env)
		if again, errAgain := invalidation.Parse("map.yaml", src, env); err != nil {
			checkFaults(t, src, err)
			if !reflect.DeepEqual(err, errAgain) {
				t.Fatalf("parsed twice:\n%v\n%v", err, errAgain)
			}
			return
		} else if errAgain != nil || again.Version() != m.Version() || !reflect.DeepEqual(again.Warnings(), m.Warnings()) {
			t.Fatal("parsed twice, and not the same")
		}
		for _, name := range m.Entities() {
			checkExpansion(t, m, name)
		}
	})
}

func checkFaults(t *testing.T, src []byte, err error) {
	t.Helper()
	var faults invalidation.Faults
	if !errors.As(err, &faults) || len(faults) == 0 {
		t.Fatalf("%v are not faults", err)
	}
	lines := strings.Count(string(src), "\n") + 1
	last := [2]int{1, 1}
	for _, fault := range faults {
		at := [2]int{fault.Line, fault.Column}
		if slices.Compare(at[:], last[:]) < 0 || fault.Problem == "" || fault.Cure == "" {
			t.Fatalf("fault out of order or incomplete: %v after %v", fault, last)
		}
		// YAML knows more line ends than \n.
		if fault.Line > lines && !strings.ContainsAny(string(src), "\r\u0085\u2028\u2029") {
			t.Fatalf("fault behind the last line: %v", fault)
		}
		last = at
	}
}

func checkExpansion(t *testing.T, m *invalidation.Map, name string) {
	t.Helper()
	row := invalidation.Row{Entity: name, ID: "*{\n"}
	for _, declared := range m.Declared(name) {
		row.Params = append(row.Params, listParam(declared, "a*b", "7"))
	}
	for range 2 {
		plan, err := m.Expand(row, nil)
		var fault *invalidation.RowError
		if err != nil && !errors.As(err, &fault) {
			t.Fatalf("%v is not a RowError", err)
		}
		if plan.Len() > m.Limits().KeysPerRow {
			t.Fatalf("%d entries", plan.Len())
		}
		for _, pattern := range plan.Patterns {
			if g, err := protocol.CompileGlob(pattern); err != nil || len(g.Prefix()) < m.Limits().PatternPrefix {
				t.Fatalf("pattern %q: %v", pattern, err)
			}
		}
		if needs, err := m.Needs(row, nil); err != nil && !errors.As(err, &fault) || len(needs) > m.Limits().KeysPerRow {
			t.Fatal(needs, err)
		}
		checkRounds(t, m, row)
		row.Params = nil
	}
}

// checkRounds asks as a worker does: the lookups of a rank when those below are answered.
func checkRounds(t *testing.T, m *invalidation.Map, row invalidation.Row) {
	t.Helper()
	var answers invalidation.Answers
	for rank := range m.Ranks() + 1 {
		needs, err := m.Needs(row, &answers)
		if err != nil {
			return
		}
		for _, n := range needs {
			if n.Lookup.Rank < rank {
				t.Fatalf("round %d: %v asks a lookup of rank %d", rank, row, n.Lookup.Rank)
			} else if n.Lookup.Rank == rank {
				answers.Put(n, thousands(2*n.Lookup.Values()))
			}
		}
	}
	if _, err := m.Expand(row, &answers); errors.Is(err, invalidation.ErrNotRun) {
		t.Fatalf("%v: %v", row, err)
	}
}

// A template that parses can be written back, and expands as its pieces say.
func FuzzTemplate(f *testing.F) {
	for _, s := range []string{"", "a", "{id}", "{{", "}}", "user:{{{id}}}:cart", "{a}{b}", "{", "}", "{}", "{ id}", "{a{b}", "}}}", "{{{", "{id}*", "é{id}"} {
		f.Add(s, "5")
	}
	f.Fuzz(func(t *testing.T, source, id string) {
		if !invalidation.IsTemplate(source) {
			return
		}
		segments := invalidation.SplitTemplate(source)
		double := strings.NewReplacer("{", "{{", "}", "}}")
		var written, expanded strings.Builder
		onlyID := true
		for _, s := range segments {
			if s.Name == "" {
				written.WriteString(double.Replace(s.Text))
				expanded.WriteString(s.Text)
				continue
			}
			onlyID = onlyID && s.Name == "id"
			written.WriteString("{" + s.Name + "}")
			expanded.WriteString(id)
		}
		if written.String() != source {
			t.Fatalf("%q became %q", source, written.String())
		}
		if !utf8.ValidString(source) {
			return // no map has such a template
		}
		m, err := invalidation.Parse("map.yaml", []byte("version: 1\nentities: {p: {keys: ["+strconv.QuoteToASCII(source)+"]}}"), nil)
		if err != nil || id == "" {
			return
		}
		plan, err := m.Expand(invalidation.Row{Entity: "p", ID: id}, nil)
		if !onlyID || err != nil || len(plan.Keys) != 1 || plan.Keys[0] != expanded.String() {
			t.Fatalf("%q with %q: %q, %v, want %q", source, id, plan.Keys, err, expanded.String())
		}
	})
}
