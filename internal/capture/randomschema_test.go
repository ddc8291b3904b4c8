package capture_test

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/unstale/unstale/internal/capture"
	"github.com/unstale/unstale/invalidation"
)

// A trial is a random schema with captures, and random statements. All of it follows from a seed,
// on one kind of server.
type trial struct {
	*shop
	seed     uint64
	r        *rand.Rand
	conn     *sql.Conn
	kind     keyKind
	tables   []*randomTable
	keys     []randomKey
	lastRow  int // value of the column u
	section  string
	refused  int // captures whose cascades cannot be covered
	writes   int // statements that changed rows
	cascaded int // of these, statements that changed rows by a foreign key
}

// A randomTable has a column u, which identifies a row for its lifetime. It is never updated.
type randomTable struct {
	name    string
	columns []string // without u
	types   map[string]string
	unique  [][]string // that a key may refer to
	primary bool       // id is the primary key, and not u

	definitions []string // of keys
	capture     *randomCapture
	expressions map[string]string // of the capture, by a name that no column has
}

type randomKey struct {
	child, parent       *randomTable
	columns, references []string
}

type randomCapture struct {
	id     string
	watch  []string          // none: all
	params map[string]string // columns, or names of expressions, by name
	on     []string
	skip   bool // errors
}

// A keyKind is the type of the column a of all tables, with values.
type keyKind struct {
	name   string
	values []string
}

var keyKinds = []keyKind{
	{"INT", []string{"1", "2", "3", "4", "5", "6", "7", "8"}},
	{"VARCHAR(8) CHARACTER SET utf8mb4", []string{"'a'", "'b'", "'c'", "'A'", "'B'", "'e'", "'É'", "'f'"}},
	{"BIGINT UNSIGNED", []string{"1", "2", "18446744073709551615", "18446744073709551614", "5", "6", "7", "9007199254740993"}},
	{"DECIMAL(6,2)", []string{"1", "1.5", "2", "2.25", "-1", "0", "7", "8"}},
	{"BINARY(2)", []string{"x'0000'", "x'0100'", "x'FF00'", "x'6100'", "x'4100'", "x'0001'", "x'00FF'", "x'8080'"}},
	{"DATE", []string{"'2026-01-01'", "'2026-01-02'", "'2026-01-03'", "'2026-01-04'", "'2026-02-01'", "'1999-12-31'", "'2026-01-07'", "'2026-01-08'"}},
	{"ENUM('a','b','c','d','e','f','g','h')", []string{"'a'", "'b'", "'c'", "'d'", "'e'", "'f'", "'g'", "'h'"}},
}

func (tr *trial) chance(percent int) bool { return tr.r.IntN(100) < percent }

func pick[T any](r *rand.Rand, all ...T) T { return all[r.IntN(len(all))] }

// newTrial creates the schema of a seed and its triggers. Tables whose cascades cannot be covered
// are not captured.
func (s *shop) newTrial(conn *sql.Conn, seed uint64) *trial {
	s.t.Helper()
	tr := &trial{shop: s, seed: seed, conn: conn, r: rand.New(rand.NewPCG(seed, 43))}
	tr.kind = pick(tr.r, append(slices.Clone(keyKinds), keyKinds[0], keyKinds[0], keyKinds[1])...)
	s.do(conn, "SET SESSION TRANSACTION ISOLATION LEVEL "+pick(tr.r, "READ COMMITTED", "REPEATABLE READ"))
	for i := range 1 + tr.r.IntN(4) {
		tr.tables = append(tr.tables, tr.newTable(fmt.Sprint("t", i)))
	}
	tr.addKeys()
	tr.do(conn, "SET SESSION foreign_key_checks = 0") // a key may refer to a later table
	for _, t := range tr.tables {
		tr.do(conn, t.create())
	}
	tr.do(conn, "SET SESSION foreign_key_checks = 1")
	for _, t := range tr.tables {
		if tr.chance(80) {
			t.capture = tr.newCapture(t)
			tr.addExpressions(t)
		}
	}
	for {
		section := tr.captures()
		if section == "" {
			return tr
		}
		c := tr.capturer(section)
		c.Notify = nil
		err := c.Apply(s.t.Context(), func(capture.Change) {})
		faults := capture.Faults(err)
		if err != nil && len(faults) == 0 {
			s.t.Fatalf("%s\n%v", tr, err)
		}
		for _, fault := range faults {
			if !strings.Contains(fault.Error(), "cannot be covered") {
				s.t.Fatalf("%s\n%v", tr, fault)
			}
			i := slices.IndexFunc(tr.tables, func(t *randomTable) bool { return t.name == fault.Table })
			if tr.tables[i].capture != nil {
				tr.tables[i].capture = nil
				tr.refused++
			}
		}
		if err == nil {
			return tr
		}
	}
}

func (tr *trial) newTable(name string) *randomTable {
	t := &randomTable{name: name, columns: []string{"id", "a", "b", "v"}, types: map[string]string{"u": "INT NOT NULL", "id": "INT", "a": tr.kind.name, "b": "INT", "v": "INT"}}
	t.unique = [][]string{{"id"}, {"a", "b"}}
	t.definitions = []string{"UNIQUE (a, b)"}
	if tr.chance(70) {
		t.unique = append(t.unique, []string{"a"}, []string{"a"}) // the more frequent one
		t.definitions = append(t.definitions, "UNIQUE (a)")
	}
	if t.primary = tr.chance(40); t.primary {
		t.definitions = append(t.definitions, "PRIMARY KEY (id)", "UNIQUE (u)")
	} else {
		t.definitions = append(t.definitions, "PRIMARY KEY (u)", "UNIQUE (id)")
	}
	return t
}

// create returns the statement that creates the table.
func (t *randomTable) create() string {
	var all []string
	for _, column := range append([]string{"u"}, t.columns...) {
		all = append(all, column+" "+t.types[column])
	}
	return fmt.Sprintf("CREATE TABLE %s (%s)", t.name, strings.Join(append(all, t.definitions...), ", "))
}

// firstCycle is the first seed whose tables delete from each other in a cycle.
const firstCycle = 1_000_000

// addKeys adds foreign keys: with columns of their own or shared ones, to other tables or to the
// own one.
func (tr *trial) addKeys() {
	random, cycle := 1+tr.r.IntN(len(tr.tables)+3), 0
	if tr.seed >= firstCycle && len(tr.tables) > 1 {
		cycle = len(tr.tables)
	}
	for n := range random + cycle {
		i := tr.r.IntN(len(tr.tables))
		key := randomKey{child: tr.tables[i], parent: pick(tr.r, tr.tables...)}
		switch {
		case tr.chance(25):
			key.parent = key.child
		case tr.chance(50): // a path over several tables
			key.parent = tr.tables[max(i-1, 0)]
		}
		if n >= random {
			key.child, key.parent = tr.tables[n-random], tr.tables[(n-random+1)%cycle]
		}
		key.references = pick(tr.r, key.parent.unique...)
		shared := ""
		if tr.chance(20) {
			shared = pick(tr.r, key.references...)
		}
		for i, reference := range key.references {
			column := reference
			if reference != shared {
				column = fmt.Sprintf("f%d%c", n, 'a'+i)
			}
			key.columns = append(key.columns, column)
		}
		if slices.Equal(key.columns, key.references) && key.child == key.parent {
			continue
		}
		onDelete := pick(tr.r, "CASCADE", "CASCADE", "CASCADE", "CASCADE", "SET NULL", "SET NULL", "SET NULL", "RESTRICT", "NO ACTION")
		onUpdate := pick(tr.r, "CASCADE", "CASCADE", "CASCADE", "SET NULL", "SET NULL", "RESTRICT", "NO ACTION")
		if n >= random {
			onDelete = "CASCADE"
		}
		if key.child.primary && slices.Contains(key.columns, "id") { // which cannot be NULL
			onDelete, onUpdate = strings.Replace(onDelete, "SET NULL", "CASCADE", 1), strings.Replace(onUpdate, "SET NULL", "CASCADE", 1)
		}
		key.child.definitions = append(key.child.definitions, fmt.Sprintf("CONSTRAINT k%d FOREIGN KEY (%s) REFERENCES %s (%s) ON DELETE %s ON UPDATE %s", n,
			strings.Join(key.columns, ", "), key.parent.name, strings.Join(key.references, ", "), onDelete, onUpdate))
		tr.keys = append(tr.keys, key)
		for i, column := range key.columns {
			if !slices.Contains(key.child.columns, column) {
				key.child.columns = append(key.child.columns, column)
				key.child.types[column] = key.parent.types[key.references[i]]
			}
		}
	}
}

func (tr *trial) newCapture(t *randomTable) *randomCapture {
	c := &randomCapture{params: map[string]string{}, on: []string{"insert", "update", "delete"}, skip: tr.chance(15)}
	var plain []string // usable without an expression
	for _, column := range t.columns {
		if t.types[column] != "BINARY(2)" {
			plain = append(plain, column)
		}
	}
	c.id = pick(tr.r, append(plain, "u", "u", "u", "id", "id")...)
	if tr.chance(40) {
		for range 1 + tr.r.IntN(3) {
			c.watch = append(c.watch, pick(tr.r, t.columns...))
		}
		slices.Sort(c.watch)
		c.watch = slices.Compact(c.watch)
	}
	for _, name := range []string{"category_id", "value"} {
		if tr.chance(50) {
			c.params[name] = pick(tr.r, plain...)
		}
	}
	if tr.chance(30) {
		i := tr.r.IntN(3)
		c.on = slices.Delete(c.on, i, i+1+tr.r.IntN(3-i))
		if len(c.on) == 0 {
			c.on = []string{pick(tr.r, "update", "delete")}
		}
		if !slices.Contains(c.on, "update") {
			c.watch = nil
		}
	}
	return c
}

// addExpressions replaces some columns of a capture by expressions over one column or two. It has
// random numbers of its own, so the schemas of seeds stay the same.
func (tr *trial) addExpressions(t *randomTable) {
	r := rand.New(rand.NewPCG(tr.seed, 44+uint64(len(t.name+t.capture.id))+uint64(t.name[1])))
	t.expressions = map[string]string{}
	column := func() string {
		name := pick(r, t.columns...)
		text := "CAST({row}." + name + " AS CHAR)"
		if t.types[name] == "BINARY(2)" {
			text = "HEX({row}." + name + ")"
		}
		return pick(r, text, "COALESCE("+text+", 'none')")
	}
	some := func(source string) string {
		if r.IntN(100) >= 30 {
			return source
		}
		name := fmt.Sprint("expression", len(t.expressions))
		t.expressions[name] = pick(r, column(), "CONCAT("+column()+", '/', "+column()+")")
		return name
	}
	t.capture.id = some(t.capture.id)
	for _, name := range slices.Sorted(maps.Keys(t.capture.params)) {
		t.capture.params[name] = some(t.capture.params[name])
	}
}

// source returns a source as the map has it.
func (t *randomTable) source(name string) string {
	if expression, ok := t.expressions[name]; ok {
		return expression
	}
	return name
}

// captures returns the section of the map.
func (tr *trial) captures() string {
	tr.section = ""
	for _, t := range tr.tables {
		c := t.capture
		if c == nil {
			continue
		}
		tr.section += fmt.Sprintf("  %s: {entity: %s, id: %q, on: [%s]", t.name, t.name, t.source(c.id), strings.Join(c.on, ", "))
		if len(c.watch) > 0 {
			tr.section += ", watch: [" + strings.Join(c.watch, ", ") + "]"
		}
		if c.skip {
			tr.section += ", on_error: skip"
		}
		sources := map[string]string{}
		for name, column := range c.params {
			sources[name] = t.source(column)
		}
		params, _ := json.Marshal(sources)
		tr.section += ", params: " + string(params) + "}\n"
	}
	return tr.section
}

func (tr *trial) capturer(section string) *capture.Capturer {
	tr.t.Helper()
	src := "version: 1\nentities:\n"
	for i := range 4 {
		src += fmt.Sprintf("  t%d: {params: [category_id, value], keys: [\"t:{id}\"], patterns: [\"pattern:{category_id}:{value}:*\"]}\n", i)
	}
	m, err := invalidation.Parse("map.yaml", []byte(src+"capture:\n"+section), func(string) (string, bool) { return "", false })
	if err != nil {
		tr.t.Fatalf("%s\n%v", section, err)
	}
	return &capture.Capturer{DB: tr.DB, Captures: m.Captures()}
}

func (tr *trial) String() string {
	var tables []string
	for _, t := range tr.tables {
		tables = append(tables, t.create()+";\n")
	}
	return fmt.Sprintf("seed %d on %s\n%scapture:\n%s", tr.seed, tr.Flavor, strings.Join(tables, ""), tr.section)
}
