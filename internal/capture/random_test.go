package capture_test

import (
	"database/sql"
	"encoding/json"
	"flag"
	"fmt"
	"iter"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/unstale/unstale/internal/capture"
	"github.com/unstale/unstale/internal/mysqlerr"
	"github.com/unstale/unstale/internal/testenv"
)

var onlySeed = flag.Uint64("seed", 0, "the only seed of the tests with random schemas; 0: all of theirs")

// A row has texts by column. A column that is NULL is missing.
type row map[string]string

// A snapshot has the rows of each table, by the value of u.
type snapshot map[*randomTable]map[string]row

func (tr *trial) snapshot() snapshot {
	tr.t.Helper()
	all := snapshot{}
	for _, t := range tr.tables {
		columns := append([]string{"u"}, t.columns...)
		var texts []string
		for _, column := range columns {
			if t.types[column] == "BINARY(2)" {
				texts = append(texts, "HEX("+column+")")
			} else {
				texts = append(texts, "CAST("+column+" AS CHAR)")
			}
		}
		for _, name := range slices.Sorted(maps.Keys(t.expressions)) {
			columns, texts = append(columns, name), append(texts, strings.ReplaceAll(t.expressions[name], "{row}", t.name))
		}
		all[t] = map[string]row{}
		rows, err := tr.conn.QueryContext(tr.t.Context(), "SELECT "+strings.Join(texts, ", ")+" FROM "+t.name)
		if err != nil {
			tr.t.Fatal(err)
		}
		for rows.Next() {
			values, to := make([]sql.NullString, len(columns)), make([]any, len(columns))
			for i := range values {
				to[i] = &values[i]
			}
			if err := rows.Scan(to...); err != nil {
				tr.t.Fatal(err)
			}
			one := row{}
			for i, column := range columns {
				if values[i].Valid {
					one[column] = values[i].String
				}
			}
			all[t][one["u"]] = one
		}
		if err := rows.Err(); err != nil {
			tr.t.Fatal(err)
		}
		_ = rows.Close()
	}
	return all
}

// literal returns a value of a snapshot in SQL.
func (t *randomTable) literal(column string, of row) string {
	text, ok := of[column]
	switch {
	case !ok:
		return "NULL"
	case t.types[column] == "BINARY(2)":
		return "x'" + text + "'"
	}
	return "'" + text + "'"
}

// value returns a random value for a column.
func (tr *trial) value(t *randomTable, column string, nulls int) string {
	switch {
	case tr.chance(nulls):
		return "NULL"
	case t.types[column] == tr.kind.name:
		return pick(tr.r, tr.kind.values...)
	}
	return fmt.Sprint(1 + tr.r.IntN(9))
}

// newRow returns random values for a row of a table. Its foreign keys refer to rows that exist, or
// are NULL in one column or in all.
func (tr *trial) newRow(t *randomTable, now snapshot) string {
	values := map[string]string{}
	for _, column := range t.columns {
		nulls := 15
		switch {
		case column == "id":
			nulls = 5
		case column[0] == 'f':
			nulls = 100
		}
		values[column] = tr.value(t, column, nulls)
	}
	for _, key := range tr.keys {
		if key.child != t {
			continue
		}
		parent, leave, hole := row{}, tr.chance(10), -1
		us := slices.DeleteFunc(slices.Sorted(maps.Keys(now[key.parent])), func(u string) bool {
			return slices.ContainsFunc(key.references, func(column string) bool { return now[key.parent][u][column] == "" })
		})
		if n := tr.r.IntN(1 << 20); len(us) > 0 {
			parent = now[key.parent][us[n%len(us)]]
		}
		if tr.chance(15) {
			hole = tr.r.IntN(len(key.columns))
		}
		for i, column := range key.columns {
			if leave || i == hole {
				if column[0] == 'f' {
					values[column] = "NULL"
				}
				continue
			}
			values[column] = key.parent.literal(key.references[i], parent)
		}
	}
	tr.lastRow++
	all := []string{fmt.Sprint(tr.lastRow)}
	for _, column := range t.columns {
		all = append(all, values[column])
	}
	return "(" + strings.Join(all, ", ") + ")"
}

// referenced returns a random row of a table that another row refers to, or "".
func (tr *trial) referenced(t *randomTable, now snapshot) string {
	var us []string
	for _, key := range tr.keys {
		for _, u := range slices.Sorted(maps.Keys(now[t])) {
			for _, child := range now[key.child] {
				refers := func(i int) bool {
					value := child[key.columns[i]]
					return value != "" && value == now[t][u][key.references[i]]
				}
				if key.parent == t && !slices.Contains(us, u) && !slices.ContainsFunc(indexes(key.columns), func(i int) bool { return !refers(i) }) {
					us = append(us, u)
				}
			}
		}
	}
	if n := tr.r.IntN(1 << 20); len(us) > 0 {
		return us[n%len(us)]
	}
	return ""
}

func indexes(of []string) (all []int) {
	for i := range of {
		all = append(all, i)
	}
	return all
}

// statement returns a random statement.
func (tr *trial) statement(now snapshot) string {
	t := pick(tr.r, tr.tables...)
	var rows []string
	for range pick(tr.r, 1, 1, 2, 3) {
		rows = append(rows, tr.newRow(t, now))
	}
	into := fmt.Sprintf("INTO %s (u, %s) VALUES %s", t.name, strings.Join(t.columns, ", "), strings.Join(rows, ", "))
	set := func() string {
		var all []string
		for range 1 + tr.r.IntN(2) {
			column := pick(tr.r, t.columns...)
			if i := tr.r.IntN(4); i < len(tr.keys) && tr.keys[i].parent == t {
				column = pick(tr.r, tr.keys[i].references...)
			}
			value := tr.value(t, column, 25)
			if t.types[column] == "INT" && tr.chance(20) {
				value = column + " + 1"
			}
			all = append(all, column+" = "+value)
		}
		return strings.Join(all, ", ")
	}
	where := func() string {
		column, us := pick(tr.r, t.columns...), slices.Sorted(maps.Keys(now[t]))
		if u := tr.referenced(t, now); u != "" && tr.chance(60) {
			return " WHERE u = " + u
		}
		if len(us) > 0 && tr.chance(50) {
			return " WHERE u = " + pick(tr.r, us...)
		}
		condition := pick(tr.r, column+" = "+tr.value(t, column, 0), column+" = "+tr.value(t, column, 0), column+" IS NULL", fmt.Sprintf("u %% 3 = %d", tr.r.IntN(3)), "TRUE")
		return " WHERE " + condition + pick(tr.r, "", " ORDER BY u LIMIT 2", " ORDER BY u DESC LIMIT 1")
	}
	full := len(now[t]) > 12
	switch n := tr.r.IntN(100); {
	case n < 28 && !full, len(now[t]) < 4:
		return "INSERT " + into
	case n < 36 && !full:
		return "INSERT " + into + " ON DUPLICATE KEY UPDATE " + set()
	case n < 50 && !full:
		return "REPLACE " + into
	case n < 75:
		return "UPDATE " + t.name + " SET " + set() + where()
	case n < 97:
		return "DELETE FROM " + t.name + where()
	}
	other := pick(tr.r, tr.tables...)
	return fmt.Sprintf("DELETE x, y FROM %s AS x JOIN %s AS y ON x.b = y.b", t.name, other.name)
}

// Errors of statements: a key that exists, a foreign key, NULL in a primary key, too many levels.
var expected = []uint16{1062, 1451, 1452, 1761, 1762, 1048, 3008, 1364, 6575}

// usedTable is the error of a trigger that locks a table of its statement.
const usedTable = 1442

// run runs statements until one leaves a change without a row, and returns its description, or "".
func (tr *trial) run(statements int) string {
	tr.t.Helper()
	tr.rows()
	before := tr.snapshot()
	for range statements {
		statement := tr.statement(before)
		done, err := tr.conn.ExecContext(tr.t.Context(), statement)
		if mysqlerr.Number(err) == usedTable && strings.HasPrefix(statement, "DELETE x, y") {
			continue // see docs/capture.md#cascades-over-several-levels
		}
		if err != nil && (!slices.Contains(expected, uint16(mysqlerr.Number(err))) || strings.Contains(err.Error(), "entity_id")) {
			return fmt.Sprintf("%s\n%s\nfails: %v", tr, statement, err)
		}
		after, rows := tr.snapshot(), tr.outbox()
		if err != nil {
			continue
		}
		direct, _ := done.RowsAffected()
		var missed []string
		changes := 0
		for _, t := range tr.tables {
			n, found := t.missed(before[t], after[t], rows)
			missed = append(missed, found...)
			changes += n
		}
		if changes > 0 {
			tr.writes++
		}
		if changes > int(direct) { // in INSERT and REPLACE, direct counts some rows twice
			tr.cascaded++
		}
		if len(missed) > 0 {
			var tables []string
			for _, t := range tr.tables {
				for _, u := range slices.Sorted(maps.Keys(before[t])) {
					tables = append(tables, fmt.Sprint(t.name, " had ", before[t][u]))
				}
			}
			return fmt.Sprintf("%s%s\n%s\n%s\nits rows: %v", tr, strings.Join(tables, "\n"), statement, strings.Join(missed, "\n"), rows)
		}
		before = after
	}
	return ""
}

// An outboxRow is a row of the outbox.
type outboxRow struct {
	entity, id string
	params     map[string][]any
}

func (tr *trial) outbox() (all []outboxRow) {
	tr.t.Helper()
	rows, err := tr.conn.QueryContext(tr.t.Context(), "SELECT entity, entity_id, COALESCE(params, '{}') FROM cache_outbox ORDER BY id")
	if err != nil {
		tr.t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var one outboxRow
		var params []byte
		if err := rows.Scan(&one.entity, &one.id, &params); err != nil {
			tr.t.Fatal(err)
		}
		if err := json.Unmarshal(params, &one.params); err != nil {
			tr.t.Fatalf("%s: %v", params, err)
		}
		all = append(all, one)
	}
	if err := rows.Err(); err != nil {
		tr.t.Fatal(err)
	}
	if len(all) > 0 {
		tr.do(tr.conn, "DELETE FROM cache_outbox")
	}
	return all
}

// missed returns the number of rows that changed, and the changes without a row of the outbox.
func (t *randomTable) missed(before, after map[string]row, rows []outboxRow) (changes int, all []string) {
	us := slices.Sorted(maps.Keys(before))
	for u := range after {
		if _, known := before[u]; !known {
			us = append(us, u)
		}
	}
	for _, u := range us {
		was, is := before[u], after[u]
		event, counted := "update", t.columns
		switch {
		case was == nil:
			event = "insert"
		case is == nil:
			event = "delete"
		}
		changed := func(column string) bool { return event != "update" || !same(was, is, column) }
		if !slices.ContainsFunc(t.columns, changed) {
			continue
		}
		changes++
		c := t.capture
		if c == nil || !slices.Contains(c.on, event) {
			continue
		}
		if len(c.watch) > 0 {
			counted = append(slices.Clone(c.watch), c.id)
			for _, column := range c.params {
				counted = append(counted, column)
			}
		}
		if !slices.ContainsFunc(counted, changed) {
			continue
		}
		for _, values := range []row{was, is} {
			// A statement may also update the row that it inserts, which other events do not capture.
			exact := event != "insert" || slices.Contains(c.on, "update")
			if _, computed := t.expressions[c.id]; computed && !exact {
				continue
			}
			if values != nil && !c.covers(t.name, values, rows, exact) {
				all = append(all, fmt.Sprintf("MISSED %s of %s: %v, then %v: no row with %v", event, t.name, was, is, values))
			}
		}
	}
	return changes, all
}

func same(a, b row, column string) bool {
	x, inA := a[column]
	y, inB := b[column]
	return x == y && inA == inB
}

// covers reports whether one of the rows names the ID and, if exact, the params of some values. NULL
// has no key.
func (c *randomCapture) covers(entity string, values row, rows []outboxRow, exact bool) bool {
	id, ok := values[c.id]
	return !ok || slices.ContainsFunc(rows, func(one outboxRow) bool {
		if one.entity != entity || one.id != id {
			return false
		}
		for name, column := range c.params {
			if value, ok := values[column]; ok && exact && !slices.Contains(one.params[name], any(value)) {
				return false
			}
		}
		return true
	})
}

// trials runs statements in the schemas of seeds, until fn returns false. plant may change the
// triggers.
func (s *shop) trials(seeds iter.Seq[uint64], statements int, plant func(*trial), fn func(tr *trial, miss string) bool) {
	s.t.Helper()
	if *onlySeed != 0 {
		seeds = slices.Values([]uint64{*onlySeed})
	}
	conn := s.conn()
	for seed := range seeds {
		tr := s.newTrial(conn, seed)
		if plant != nil {
			plant(tr)
		}
		miss := ""
		if tr.section != "" {
			miss = tr.run(statements)
		}
		s.rows()
		s.do(conn, "SET SESSION foreign_key_checks = 0", "DROP TABLE IF EXISTS t0, t1, t2, t3", "SET SESSION foreign_key_checks = 1")
		if !fn(tr, miss) {
			return
		}
	}
}

// upTo returns the seeds from 1 on, or from those with cycles on.
func upTo(n uint64, cycles bool) iter.Seq[uint64] {
	first := uint64(1)
	if cycles {
		first += firstCycle
	}
	return func(yield func(uint64) bool) {
		for seed := first; seed < first+n && yield(seed); seed++ {
		}
	}
}

// newRandomShop returns a shop for random schemas. For cycles it starts a server that executes
// foreign keys in InnoDB: by default, MySQL 9.7.4 leaves rows in a cycle, and deletes others.
func newRandomShop(t *testing.T, cycles bool) *shop {
	t.Helper()
	if !cycles {
		return newShop(t)
	}
	return newShopOn(t, testenv.OwnDatabase(t, "--loose-innodb-native-foreign-keys=ON"))
}

// randomWrites runs random schemas until enough statements changed rows. No change of a captured
// row may be without its row of the outbox, and no write may fail because of a trigger.
func randomWrites(t *testing.T, cycles bool, enough, statements int) {
	t.Helper()
	s := newRandomShop(t, cycles)
	writes, cascaded, refused, schemas := 0, 0, 0, 0
	s.trials(upTo(10_000, cycles), statements, nil, func(tr *trial, miss string) bool {
		schemas, writes, cascaded, refused = schemas+1, writes+tr.writes, cascaded+tr.cascaded, refused+tr.refused
		if miss != "" {
			t.Errorf("repeat it with -seed %d: %s", tr.seed, miss)
		}
		return writes < enough
	})
	t.Logf("%d schemas, %d statements changed rows, %d of them by foreign keys, %d captures refused", schemas, writes, cascaded, refused)
	if *onlySeed == 0 && cascaded < writes/20 {
		t.Errorf("%d of %d statements changed rows by foreign keys", cascaded, writes)
	}
}

// Every change of a captured row has its row in the outbox, for any schema and statement: the short
// form of TestManyRandomWrites.
func TestRandomWrites(t *testing.T) {
	t.Parallel()
	randomWrites(t, false, 200, 60)
}

// The same with tables that delete from each other in a cycle.
func TestRandomWritesInCycles(t *testing.T) {
	t.Parallel()
	randomWrites(t, true, 200, 60)
}

// A plant is a fault in the text of triggers.
type plant struct {
	name   string
	seeds  []uint64 // one of them finds it; TestSeedsOfFaults prints others
	cycles bool     // only schemas with cycles have it
	change func(tr *trial, e capture.Existing) string
}

// treeColumns matches the columns of a tree, and the end of the statement's FROM.
var treeColumns = regexp.MustCompile("(?s)WITH RECURSIVE unstale_tree \\(([^)]*)\\)(.*?)FROM (`[^`]*`) AS unstale_child\n      JOIN unstale_tree\n      WHERE ")

var plants = []plant{
	{"rows at the end of a branch whose references are NULL", []uint64{1}, false, func(tr *trial, e capture.Existing) string {
		return treeColumns.ReplaceAllStringFunc(e.Body, func(text string) string {
			m := treeColumns.FindStringSubmatch(text)
			if m[3] != "`"+e.Table+"`" || strings.Contains(m[1], "unstale") { // a cycle of tables
				return text
			}
			for column := range strings.SplitSeq(m[1], ", ") {
				text += "unstale_child." + column + " IS NOT NULL AND "
			}
			return text
		})
	}},
	{"the join of deeper levels of a tree", []uint64{1}, false, func(tr *trial, e capture.Existing) string {
		body := ""
		for line := range strings.Lines(e.Body) {
			switch {
			case !strings.HasPrefix(line, "        UNION ("):
				body += line
			case strings.HasSuffix(line, "))\n"), strings.HasSuffix(line, ")),\n"):
				body = strings.TrimSuffix(body, "\n") + line[strings.LastIndex(line, ")"):]
			}
		}
		return body
	}},
	{"the keys between the tables of a cycle", []uint64{firstCycle + 8}, true, func(tr *trial, e capture.Existing) string {
		return regexp.MustCompile(`(?m)^        UNION \(SELECT .*NULL.* ON `).ReplaceAllString(e.Body, "${0}FALSE AND ")
	}},
	{"ON UPDATE", []uint64{6}, false, func(tr *trial, e capture.Existing) string {
		if e.Timing != "BEFORE" || e.Event != "UPDATE" {
			return e.Body
		}
		return strings.ReplaceAll(e.Body, " IF NOT (CAST(OLD", " IF FALSE AND NOT (CAST(OLD")
	}},
	{"NULL in a composite reference", []uint64{21}, false, func(tr *trial, e capture.Existing) string {
		body := ""
		for line := range strings.Lines(e.Body) {
			if e.Timing == "BEFORE" && strings.Contains(line, " IF NOT (CAST(OLD") && strings.Contains(line, " AND ") {
				line = strings.ReplaceAll(line, "<=>", "=")
			}
			body += line
		}
		return body
	}},
}

// in changes the triggers of a trial.
func (p plant) in(tr *trial) {
	tr.t.Helper()
	existing, err := capture.ReadExisting(tr.t.Context(), tr.DB)
	if err != nil {
		tr.t.Fatal(err)
	}
	for _, e := range existing {
		if body := p.change(tr, e); body != e.Body {
			tr.do(tr.conn, "DROP TRIGGER "+e.Name, fmt.Sprintf("CREATE TRIGGER %s %s %s ON %s FOR EACH ROW %s", e.Name, e.Timing, e.Event, e.Table, body))
		}
	}
}

// found returns the first miss of a planted fault.
func (p plant) found(t *testing.T, seeds iter.Seq[uint64]) (found string, seed uint64) {
	t.Helper()
	s := newRandomShop(t, p.cycles)
	s.trials(seeds, 60, p.in, func(tr *trial, miss string) bool {
		found, seed = miss, tr.seed
		return miss == ""
	})
	return found, seed
}

// Faults of triggers are found: those that ignore something.
func TestPlantedFaults(t *testing.T) {
	t.Parallel()
	for _, p := range plants {
		if len(p.seeds) == 0 {
			continue
		}
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			found, seed := p.found(t, slices.Values(p.seeds))
			if !strings.Contains(found, "MISSED") {
				t.Errorf("found: %q; TestSeedsOfFaults prints the seeds that find it", found)
			}
			t.Logf("seed %d found it: %s", seed, found)
		})
	}
}
