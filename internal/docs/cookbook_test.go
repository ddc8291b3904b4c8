package docs

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/unstale/unstale/internal/doctor"
	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/maptool"
	"github.com/unstale/unstale/internal/session"
	"github.com/unstale/unstale/internal/storetest/schematest"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/invalidation"
	"github.com/unstale/unstale/protocol"
	"github.com/unstale/unstale/redisurl"
	"github.com/unstale/unstale/worker"
)

const cookbookPage = "docs/map-cookbook.md"

// A recipe is a section of the cookbook: a map, cases, SQL that creates tables, fills them and
// writes rows, and commands that fill the cache.
type recipe struct {
	title, cases string
	m            *invalidation.Map
	sql, redis   []block
}

// A recipeCase is a case of the page, parsed without package maptool.
type recipeCase struct {
	Name string
	Row  struct {
		Entity, ID string
		Params     map[string]recipeValues
	}
	Lookups         map[string]recipeValues
	Reaches, Spares []string
	Refused         string
}

// recipeValues are one text or a list of them.
type recipeValues struct {
	texts []string
	list  bool
}

func (v *recipeValues) UnmarshalYAML(n *yaml.Node) error {
	if v.list = n.Kind == yaml.SequenceNode; v.list {
		return n.Decode(&v.texts)
	}
	v.texts = []string{n.Value}
	return nil
}

// Every recipe of docs/map-cookbook.md has the results of its cases, with lookups in its tables,
// and the rows that it writes are among its cases.
func TestCookbook(t *testing.T) {
	t.Parallel()
	outbox := testenv.MySQL(t)
	schematest.Up(t, outbox.DB)
	for _, r := range recipes(t) {
		t.Run(r.title, func(t *testing.T) {
			t.Parallel()
			cases, err := maptool.ReadCases([]byte(r.cases))
			if err != nil {
				t.Fatal(err)
			}
			report := maptool.RunCases(r.m, cases)
			for _, c := range report.Cases {
				if len(c.Problems) > 0 {
					t.Errorf("%s:\n%s", c.Name, strings.Join(c.Problems, "\n"))
				}
			}
			if len(r.m.Reads().All()) == 0 || len(r.m.Uncovered()) > 0 {
				t.Errorf("its reads are not covered: %v", invalidation.Faults(r.m.Uncovered()))
			}
			if len(report.Untouched) > 0 {
				t.Errorf("no case touches %+v", report.Untouched)
			}
			if t.Failed() {
				return
			}
			if len(r.sql) > 0 {
				r.onServer(t, outbox.Name+".cache_outbox")
			} else if len(r.m.Lookups()) > 0 {
				t.Error("it has a lookup, and no tables")
			}
			if len(r.redis) > 0 {
				r.takeSets(t)
			}
		})
	}
}

// The code that is generated from each recipe compiles.
func TestCookbookCode(t *testing.T) {
	t.Parallel()
	files := map[string]string{}
	for i, r := range recipes(t) {
		name := fmt.Sprint("recipe", i)
		code, err := maptool.GenerateGo(maptool.NamesOf(r.m), name, cookbookPage)
		if err != nil {
			t.Errorf("%s: %v", r.title, err)
		}
		files["internal/docs/"+name+"/names.go"] = string(code)
	}
	if out := testenv.Compile(t, root, files); out != "" {
		t.Error(out)
	}
}

// recipes reads the page.
func recipes(t *testing.T) (list []recipe) {
	t.Helper()
	all := blocks(t, cookbookPage, "yaml", "sql", "redis")
	line := 0
	for text := range strings.Lines(read(t, cookbookPage)) {
		line++
		if title, ok := strings.CutPrefix(text, "## "); ok {
			list = append(list, recipe{title: strings.TrimSpace(title)})
		}
		for len(all) > 0 && all[0].line == line {
			list[len(list)-1].take(t, all[0])
			all = all[1:]
		}
	}
	for _, r := range list {
		if r.m == nil || r.cases == "" {
			t.Fatalf("%s: the recipe %q has no map or no cases", cookbookPage, r.title)
		}
	}
	if len(list) == 0 {
		t.Fatalf("%s has no recipe", cookbookPage)
	}
	return list
}

func (r *recipe) take(t *testing.T, b block) {
	t.Helper()
	switch {
	case b.lang == "sql":
		r.sql = append(r.sql, b)
	case b.lang == "redis":
		r.redis = append(r.redis, b)
	case strings.HasPrefix(b.text, "cases:") && r.cases == "":
		r.cases = b.text
	case strings.HasPrefix(b.text, "version: 1") && r.m == nil:
		m, err := invalidation.Parse(fmt.Sprintf("%s:%d", b.page, b.line), []byte(b.text), nil)
		if err != nil {
			t.Fatal(err)
		}
		r.m = m
	default:
		t.Fatalf("%s:%d: wanted one map, one list of cases and SQL in a recipe", b.page, b.line)
	}
}

// decoded returns the cases of the page.
func (r *recipe) decoded(t *testing.T) []recipeCase {
	t.Helper()
	var file struct{ Cases []recipeCase }
	if err := yaml.Unmarshal([]byte(r.cases), &file); err != nil {
		t.Fatal(err)
	}
	return file.Cases
}

// onServer creates the tables, writes rows to an outbox like another one, checks the lookups for
// several IDs together, and expands the cases as a worker does.
func (r *recipe) onServer(t *testing.T, outbox string) {
	shop := testenv.MySQL(t)
	run(t, shop.DB, "CREATE TABLE cache_outbox LIKE "+outbox)
	writes := false
	for _, b := range r.sql {
		writes = writes || strings.Contains(b.text, "cache_outbox")
		run(t, shop.DB, statements(b)...)
	}
	cases := r.decoded(t)
	if writes {
		wantWritten(t, shop, cases)
	}
	at, err := session.ParseDSN(shop.DSN)
	if err != nil {
		t.Fatal(err)
	}
	s, err := session.Open(session.Config{MySQL: at, Worker: "cookbook", LookupTimeout: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	for _, l := range r.m.Lookups() {
		if p, err := doctor.CheckLookup(t.Context(), s, l); err != nil || p.Differs != "" || l.Single {
			t.Errorf("the lookup of %s: %v, %v", l.Param, p, err)
		}
	}
	for _, c := range cases {
		if c.Refused == "" {
			r.expand(t, s, c)
		}
	}
}

// wantWritten checks that each row that the SQL has written is the row of a case.
func wantWritten(t *testing.T, shop *testenv.Database, cases []recipeCase) {
	t.Helper()
	var known []string
	for _, c := range cases {
		known = append(known, fmt.Sprint(c.row()))
	}
	rows, err := shop.DB.QueryContext(t.Context(), "SELECT entity, entity_id, COALESCE(params, '{}') FROM cache_outbox")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	written := 0
	for rows.Next() {
		var row invalidation.Row
		var params string
		if err := rows.Scan(&row.Entity, &row.ID, &params); err != nil {
			t.Fatal(err)
		}
		if row.Params, err = invalidation.ParseParams([]byte(params)); err != nil {
			t.Fatal(err)
		}
		if written++; !slices.Contains(known, fmt.Sprint(row)) {
			t.Errorf("%v is written, and the row of no case: %v", row, known)
		}
	}
	if err := rows.Err(); err != nil || written == 0 {
		t.Errorf("%d rows are written, %v", written, err)
	}
}

// row returns the row of the case, with its parameters sorted by name.
func (c *recipeCase) row() invalidation.Row {
	row := invalidation.Row{Entity: c.Row.Entity, ID: c.Row.ID, Params: invalidation.Params{}}
	for _, name := range slices.Sorted(maps.Keys(c.Row.Params)) {
		v := c.Row.Params[name]
		row.Params = append(row.Params, invalidation.Param{Name: name, Values: v.texts, List: v.list})
	}
	return row
}

// expand checks that the lookups find the rows of the case, and that the row reaches all keys that
// it must reach, and no key that it must not.
func (r *recipe) expand(t *testing.T, s *session.Sessions, c recipeCase) {
	t.Helper()
	found, says := map[string][]string{}, map[string][]string{}
	plan, err := worker.Expand(t.Context(), r.m, func(ctx context.Context, query string, by [][]string, values int) ([][]string, error) {
		rows, err := session.NewLookups(s).Lookup(ctx, query, by, values)
		for _, l := range r.m.Lookups() {
			if l.SQL != query {
				continue
			}
			names := strings.Join(append([]string{l.Param}, l.With...), " ")
			found[names], says[names] = append(found[names], []string{}...), c.says(l)
			for _, row := range rows {
				found[names] = append(found[names], strings.Join(row[len(row)-values:], " "))
			}
		}
		return rows, err
	}, c.row())
	if err != nil {
		t.Errorf("%s: %v", c.Name, err)
		return
	}
	if got, want := sets(found), sets(says); got != want {
		t.Errorf("%s: lookups find %s, the case says %s", c.Name, got, want)
	}
	for _, key := range c.Reaches {
		if !reaches(t, plan, key) {
			t.Errorf("%s: a worker does not reach %s by %+v", c.Name, key, plan)
		}
	}
	for _, key := range c.Spares {
		if reaches(t, plan, key) {
			t.Errorf("%s: a worker reaches %s by %+v", c.Name, key, plan)
		}
	}
}

// says returns the rows that a lookup finds according to the case.
func (c *recipeCase) says(l *invalidation.Lookup) []string {
	list := slices.Clone(c.Lookups[l.Param].texts)
	for _, name := range l.With {
		for i, text := range c.Lookups[name].texts {
			list[i] += " " + text
		}
	}
	return list
}

// sets formats lists as sets: neither the order nor the number of their texts counts.
func sets(of map[string][]string) string {
	texts := map[string][]string{}
	for name, list := range of {
		texts[name] = slices.Compact(slices.Sorted(slices.Values(list)))
	}
	return fmt.Sprint(texts)
}

func reaches(t *testing.T, plan invalidation.Plan, key string) bool {
	t.Helper()
	return slices.Contains(plan.Keys, key) || slices.Contains(plan.Sets, key) || slices.ContainsFunc(plan.Patterns, func(pattern string) bool {
		glob, err := protocol.CompileGlob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		return glob.Match(key)
	})
}

// takeSets fills the cache and clears the sets of the cases, as a worker does.
func (r *recipe) takeSets(t *testing.T) {
	cache := testenv.Redis(t)
	for _, b := range r.redis {
		conn := cache.Client.Conn() // one connection for MULTI
		for line := range strings.Lines(b.text) {
			if err := conn.Do(t.Context(), words(line)...).Err(); err != nil {
				t.Fatalf("%s:%d: %s: %v", b.page, b.line, line, err)
			}
		}
		if err := conn.Close(); err != nil {
			t.Fatal(err)
		}
	}
	at, err := redisurl.Parse(cache.URL, false)
	if err != nil {
		t.Fatal(err)
	}
	k, err := keyspace.Open(keyspace.Options{Redis: at, Timeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := k.Close(); err != nil {
			t.Error(err)
		}
	}()
	var members []string
	for i, c := range r.decoded(t) {
		plan, err := r.m.Expand(c.row(), nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, set := range plan.Sets {
			members = append(members, cache.Client.SMembers(t.Context(), set).Val()...)
			if _, err := k.Sets.TakeSet(t.Context(), set, uint64(i), func([]string) error { return nil }); err != nil {
				t.Error(err)
			}
		}
	}
	if len(members) == 0 {
		t.Fatal("no case takes a set that the page fills")
	}
	if left, err := cache.Client.Exists(t.Context(), members...).Result(); left != 0 || err != nil {
		t.Errorf("of %v %d are left, %v", members, left, err)
	}
}
