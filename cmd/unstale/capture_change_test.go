package main

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/unstale/unstale/internal/capture"
	"github.com/unstale/unstale/internal/testenv"
)

// A changing is a shop whose tables are in the middle of a schema change.
type changing struct {
	t testing.TB
	*testenv.Database
	vars map[string]string
}

func newChanging(t testing.TB) *changing {
	t.Helper()
	w := &changing{t, testenv.MySQL(t), nil}
	file := filepath.Join(t.TempDir(), "map.yaml")
	src := "version: 1\nentities: {product: {keys: [\"product:{id}\"]}}\ncapture: {products: {entity: product, id: id}}\n"
	if err := os.WriteFile(file, []byte(src), 0o600); err != nil {
		t.Fatal(err)
	}
	definer := w.Name + "@localhost"
	w.vars = map[string]string{"MYSQL_DSN": w.DSN, "UNSTALE_MAP": file, "UNSTALE_DEFINER": definer}
	w.run("unstale migrate up")
	w.run("CREATE TABLE products (id INT PRIMARY KEY, name VARCHAR(20));", "INSERT INTO products VALUES (1, 'a');",
		"CREATE USER "+definer+" ACCOUNT LOCK;", "GRANT INSERT (entity, entity_id, params) ON cache_outbox TO "+definer+";",
		"GRANT SELECT, TRIGGER ON products TO "+definer+";")
	t.Cleanup(func() { w.DB.Exec("DROP USER " + definer) }) // the test's context has ended
	w.run("unstale capture apply")
	return w
}

// run runs steps: SQL ends with a semicolon, others are commands.
func (w *changing) run(steps ...string) {
	w.t.Helper()
	for _, step := range steps {
		if args, ok := strings.CutPrefix(step, "unstale "); ok {
			if r := call(w.t, w.vars, strings.Fields(args)...); r.code != exitDone {
				w.t.Fatalf("%s: %+v", step, r)
			}
		} else if _, err := w.DB.ExecContext(w.t.Context(), step); err != nil || !strings.HasSuffix(step, ";") {
			w.t.Fatalf("%s: %v", step, err)
		}
	}
}

// recreate creates the triggers of products with an event on another table. With a suffix, it does
// so as gh-ost: without a definer, in the session's mode. Without one, it moves them as
// pt-online-schema-change.
func (w *changing) recreate(table, event, suffix string) {
	w.t.Helper()
	list, err := capture.ReadExisting(w.t.Context(), w.DB)
	if err != nil {
		w.t.Fatal(err)
	}
	session, err := w.DB.Conn(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	defer session.Close()
	for _, e := range list {
		if e.Table != "products" || event != "" && e.Event != event {
			continue
		}
		definer, steps := "", []string{"SET sql_mode = ''"}
		if suffix == "" {
			user, host, _ := strings.Cut(e.Definer, "@")
			definer, steps = "DEFINER = `"+user+"`@`"+host+"`", []string{"SET sql_mode = '" + e.Mode + "'", "DROP TRIGGER " + e.Name}
		}
		for _, step := range append(steps, fmt.Sprintf("CREATE %s TRIGGER %s%s %s %s ON %s FOR EACH ROW %s", definer, e.Name, suffix, e.Timing, e.Event, table, e.Body)) {
			if _, err := session.ExecContext(w.t.Context(), step); err != nil {
				w.t.Fatalf("%s: %v", step, err)
			}
		}
	}
}

// ghOst leaves what gh-ost has before it swaps the tables.
func (w *changing) ghOst() {
	w.run("CREATE TABLE _products_ghc (id INT PRIMARY KEY);", "CREATE TABLE _products_gho LIKE products;", "ALTER TABLE _products_gho ADD color INT;",
		"INSERT INTO _products_gho SELECT *, 1 FROM products;", "CREATE TABLE _products_del (id INT PRIMARY KEY);")
	w.recreate("_products_gho", "", "_gho")
}

// ptOSC leaves what pt-online-schema-change has before it moves triggers.
func (w *changing) ptOSC() {
	w.run("CREATE TABLE _products_new LIKE products;", "INSERT INTO _products_new SELECT * FROM products;",
		fmt.Sprintf("CREATE TRIGGER pt_osc_%[1]s_products_ins AFTER INSERT ON products FOR EACH ROW REPLACE INTO `%[1]s`.`_products_new` (`id`, `name`) VALUES (NEW.`id`, NEW.`name`);", w.Name))
}

// In each state that a schema change leaves, the commands say what it is and what comes next, and
// that leads to triggers in place.
func TestSchemaChanges(t *testing.T) {
	t.Parallel()
	grant := func(w *changing) {
		w.run("GRANT SELECT, TRIGGER ON _products_new TO " + w.vars["UNSTALE_DEFINER"] + ";")
	}
	swap := "RENAME TABLE products TO products_old, products_new TO products;"
	for name, c := range map[string]struct {
		begin    func(*changing)
		code     int      // of diff
		found    []string // for each schema change
		severity string   // of the doctor's worst finding about it
		end      func(*changing)
	}{
		"gh-ost copies": {(*changing).ghOst, exitDone, []string{"copying: gh-ost copies it to _products_gho;"}, "info", func(w *changing) {
			if r := call(w.t, w.vars, "capture", "apply"); !strings.Contains(r.out, upToDate) {
				w.t.Errorf("apply beside gh-ost: %+v", r)
			}
			w.run("DROP TABLE _products_gho;", "DROP TABLE _products_del;")
		}},
		"gh-ost has ended": {func(w *changing) {
			w.ghOst()
			w.run("DROP TABLE _products_del;", "RENAME TABLE products TO _products_del, _products_gho TO products;")
		}, exitFail, []string{"foreign: its triggers are not those that apply creates: unstale_", "left: _products_del, whose place it took, still exists;"}, "critical", nil},
		"gh-ost has ended, and a trigger is missing": {func(w *changing) {
			w.ghOst()
			w.run("DROP TABLE _products_del;", "RENAME TABLE products TO _products_del, _products_gho TO products;", "DROP TRIGGER "+w.existing()[0].Name+";")
		}, exitFail, []string{"foreign: "}, "critical", func(w *changing) { w.run("DROP TABLE _products_del;") }},
		"gh-ost with a time": {func(w *changing) { w.run("CREATE TABLE _products_20260102030405_del LIKE products;") },
			exitDone, []string{"left: _products_20260102030405_del, "}, "info", nil},
		"pt-osc copies": {func(w *changing) { w.ptOSC(); grant(w) }, exitDone, []string{"copying: pt-online-schema-change copies it to _products_new;"}, "info", func(w *changing) {
			w.recreate("_products_new", "", "")
			w.run("RENAME TABLE products TO _products_old, _products_new TO products;", "DROP TABLE _products_old;")
		}},
		"pt-osc moves triggers": {func(w *changing) {
			w.ptOSC()
			grant(w)
			w.recreate("_products_new", "INSERT", "")
			w.run("DELETE FROM cache_outbox;", "INSERT INTO products VALUES (2, 'b');")
			w.wantRows(1)
		}, exitFail, []string{"moving: pt-online-schema-change moves its triggers to _products_new;"}, "warning", func(w *changing) {
			w.recreate("_products_new", "", "")
			w.run("RENAME TABLE products TO _products_old, _products_new TO products;", "DROP TABLE _products_old;")
		}},
		"pt-osc has left a table": {func(w *changing) { w.run("CREATE TABLE _products_old LIKE products;") }, exitDone, []string{"left: _products_old, "}, "info", nil},
		"a swap": {func(w *changing) {
			w.run("CREATE TABLE products_new LIKE products;", "INSERT INTO products_new VALUES (3, 'c');", swap)
		},
			exitFail, []string{"replaced: another table has its name now, and its triggers are on products_old:"}, "critical", func(w *changing) { w.run("DELETE FROM cache_outbox;") }},
		"a swap to come": {func(w *changing) {
			w.run("CREATE TABLE products_new LIKE products;")
			w.recreate("products_new", "", "_x")
		}, exitDone, []string{"copying: products_new has its triggers too"}, "info", func(w *changing) { w.run(swap) }},
		"a restore in another mode": {func(w *changing) {
			w.recreate("products", "", "_x")
			w.run("DELETE FROM cache_outbox;")
			for _, e := range w.existing() {
				if !strings.HasSuffix(e.Name, "_x") {
					w.run("DROP TRIGGER " + e.Name + ";")
				}
			}
		}, exitFail, []string{"foreign: "}, "critical", nil},
		"no schema change": {func(w *changing) { w.run("unstale capture drop", "CREATE TABLE _products_new LIKE products;") }, exitFail, nil, "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newChanging(t)
			c.begin(w)
			next := w.wantChanges(c.code, c.found...)
			r := call(t, w.vars, "doctor", "--check", "capture")
			if line := strings.Index(r.out, c.severity+strings.Repeat(" ", 10-len(c.severity))+"capture            the table products: "); (line >= 0) != (c.severity != "") {
				t.Errorf("doctor: %+v, wanted %q", r, c.severity)
			}
			if c.end != nil {
				c.end(w)
			}
			if len(next) == 0 {
				next = []string{"unstale capture apply"}
			}
			w.run(next...)
			for _, f := range c.found {
				if table, left := strings.CutPrefix(f, "left: "); left {
					table, _, _ = strings.Cut(table, ",")
					w.run("DROP TABLE " + table + ";")
				}
			}
			if slices.Contains(next, "unstale replay --table products") {
				w.wantRows(1)
			}
			w.wantChanges(exitDone)
			w.run("DELETE FROM cache_outbox;", "INSERT INTO products (id, name) VALUES (9, 'z');")
			w.wantRows(1)
		})
	}
}

// A definer without privileges on a copy fails writes as soon as a trigger is moved there. That is
// reported before, with what is missing.
func TestDefinerOfACopy(t *testing.T) {
	t.Parallel()
	w := newChanging(t)
	w.ptOSC()
	r := call(t, w.vars, "capture", "diff")
	_, cure, _ := strings.Cut(r.err, "\n")
	if r.code != exitFail || !strings.Contains(cure, "GRANT SELECT, TRIGGER ON `"+w.Name+"`.`_products_new` TO ") || strings.Count(cure, "GRANT ") != 1 {
		t.Fatalf("%+v", r)
	}
	if r := call(t, w.vars, "doctor", "--check", "capture"); !strings.Contains(r.out, "so every write to their tables will fail") || !strings.Contains(r.out, strings.TrimSpace(cure)) {
		t.Errorf("%+v", r)
	}
	w.recreate("_products_new", "INSERT", "")
	const write = "INSERT INTO products VALUES (2, 'b');"
	if _, err := w.DB.ExecContext(t.Context(), write); err == nil {
		t.Error("a moved trigger needs no privilege")
	}
	if r := call(t, w.vars, "capture", "diff"); !strings.Contains(r.err, strings.TrimSpace(cure)) {
		t.Errorf("after the move: %+v", r)
	}
	w.run(strings.TrimSpace(cure), write)
}

func (w *changing) existing() []capture.Existing {
	w.t.Helper()
	list, err := capture.ReadExisting(w.t.Context(), w.DB)
	if err != nil {
		w.t.Fatal(err)
	}
	return list
}

func (w *changing) wantRows(least int) {
	w.t.Helper()
	var rows sql.NullInt64
	if err := w.DB.QueryRowContext(w.t.Context(), "SELECT COUNT(*) FROM cache_outbox").Scan(&rows); err != nil || rows.Int64 < int64(least) {
		w.t.Errorf("%d rows, wanted %d: %v", rows.Int64, least, err)
	}
}

// wantChanges compares the schema changes of diff, and returns the next steps.
func (w *changing) wantChanges(code int, found ...string) (next []string) {
	w.t.Helper()
	r, text := call(w.t, w.vars, "capture", "diff", "--json"), call(w.t, w.vars, "capture", "diff")
	var got triggers
	if err := json.Unmarshal([]byte(r.out), &got); err != nil || r.code != code || text.code != code || len(got.SchemaChanges) != len(found) {
		w.t.Fatalf("%+v, %v: wanted %d and %q", r, err, code, found)
	}
	for i, s := range got.SchemaChanges {
		line := "\nproducts: " + s.Found + "\n"
		if len(s.Next) > 0 {
			line += "next:\n  " + strings.Join(s.Next, "\n  ") + "\n"
		}
		if !strings.HasPrefix(string(s.State)+": "+s.Found, found[i]) || !strings.Contains(text.out, line) || len(s.Next) == 0 && s.State != capture.Left {
			w.t.Errorf("%+v, wanted %q in %s", s, found[i], text.out)
		}
		next = append(next, s.Next...)
	}
	return next
}
