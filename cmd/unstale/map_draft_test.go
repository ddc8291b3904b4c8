package main

import (
	"cmp"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/unstale/unstale/internal/capture"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/invalidation"
)

// execAll runs statements in one session.
func execAll(t *testing.T, db *sql.DB, statements ...string) {
	t.Helper()
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, statement := range statements {
		if strings.TrimSpace(statement) == "" {
			continue
		}
		if _, err := conn.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%v: %s", err, statement)
		}
	}
}

// The draft of each schema passes map check, capture apply makes its triggers, and a write of each
// captured table leaves a row for its entity, with the ID of the row.
func TestMapDraftSchemas(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../lab/schemas/*.sql")
	if err != nil || len(files) < 3 {
		t.Fatalf("%q: %v", files, err)
	}
	for _, schema := range files {
		t.Run(strings.TrimSuffix(filepath.Base(schema), ".sql"), func(t *testing.T) {
			t.Parallel()
			env := testenv.MySQL(t)
			src, err := os.ReadFile(schema)
			if err != nil {
				t.Fatal(err)
			}
			execAll(t, env.DB, strings.Split(string(src), ";\n")...)
			file := filepath.Join(t.TempDir(), "mapping.yaml")
			m := drafted(t, env, file)
			proveDraft(t, env.DB, m)
			proveDay(t, env, strings.TrimSuffix(filepath.Base(schema), ".sql"), file)
		})
	}
}

// drafted drafts the map of a database, checks it, and creates its triggers.
func drafted(t *testing.T, env *testenv.Database, file string, args ...string) *invalidation.Map {
	t.Helper()
	vars := map[string]string{"MYSQL_DSN": env.DSN}
	want := func(args ...string) {
		t.Helper()
		r := call(t, vars, args...)
		if r.code != exitDone {
			text, _ := os.ReadFile(file)
			t.Fatalf("%q: %+v\n%s", args, r, text)
		}
		t.Logf("%q: %s%s", args, r.out, r.err)
	}
	want(append([]string{"map", "draft", "--app", "shop", "-o", file}, args...)...)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s", text)
	if again := call(t, vars, append([]string{"map", "draft", "--app", "shop"}, args...)...); again.out != string(text) {
		t.Errorf("another draft of the same tables differs:\n%s", again.out)
	}
	want("map", "check", file, "--mysql-dsn", env.DSN)
	want("migrate", "up")
	want("capture", "apply", "--map", file)
	m, err := invalidation.Parse(file, text, nil)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// A written is a value of a row that a test writes, and its text in an ID.
type written struct{ sql, id string }

// valueOf returns a value of a column.
func valueOf(kind string, length int) written {
	switch kind {
	case "char", "varchar", "tinytext", "text", "mediumtext", "longtext":
		return written{"'1'", "1"} // which a JSON of MariaDB may be
	case "binary":
		return written{fmt.Sprintf("REPEAT(X'AB', %d)", length), strings.Repeat("ab", length)}
	case "varbinary", "tinyblob", "blob", "mediumblob", "longblob":
		return written{"X'AB'", "ab"}
	case "date", "datetime", "timestamp":
		return written{"'2026-11-23'", "2026-11-23"}
	case "time":
		return written{"'07:00:00'", "07:00:00"}
	case "year":
		return written{"2026", "2026"}
	case "json":
		return written{"'{}'", ""}
	case "geometry", "point":
		return written{"ST_GeomFromText('POINT(1 1)')", ""}
	case "enum", "set", "bit":
		return written{"1", "01"}
	}
	return written{"7", "7"}
}

// proveDraft writes, changes and deletes a row of each captured table, and checks the outbox.
func proveDraft(t *testing.T, db *sql.DB, m *invalidation.Map) {
	t.Helper()
	tables := map[string][]string{} // entities of each table, the first one for the row itself
	for _, c := range m.Captures() {
		tables[c.Table] = append(tables[c.Table], c.Entity)
	}
	for table, entities := range tables {
		row := rowOf(t, db, table)
		name := capture.QuoteName(table)
		for _, write := range []string{
			"INSERT INTO " + name + " (" + strings.Join(row.columns, ", ") + ") VALUES (" + strings.Join(row.values, ", ") + ")",
			"UPDATE " + name + " SET " + cmp.Or(row.text, row.columns[0]) + " = '2'",
			"DELETE FROM " + name,
		} {
			if strings.HasPrefix(write, "UPDATE") && row.text == "" {
				continue
			}
			execAll(t, db, "SET FOREIGN_KEY_CHECKS = 0", "DELETE FROM cache_outbox", write, "SET FOREIGN_KEY_CHECKS = 1")
			got := outboxRows(t, db)
			for i, entity := range entities {
				ids := got[entity]
				isParent := i > 0
				for other, first := range tables {
					isParent = isParent || other != table && first[0] == entity
				}
				if len(ids) == 0 || !isParent && ids[0] != row.id {
					t.Errorf("%s: %s has the rows %q, wanted %q", write, entity, ids, row.id)
				}
			}
		}
	}
	if len(tables) == 0 {
		t.Error("nothing is captured")
	}
}

// outboxRows returns the IDs of each entity in the outbox.
func outboxRows(t *testing.T, db *sql.DB) map[string][]string {
	t.Helper()
	rows, err := db.Query("SELECT entity, entity_id FROM cache_outbox ORDER BY id")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	all := map[string][]string{}
	for rows.Next() {
		var entity, id string
		if err := rows.Scan(&entity, &id); err != nil {
			t.Fatal(err)
		}
		all[entity] = append(all[entity], id)
	}
	return all
}

// A testRow is a row of a table.
type testRow struct {
	columns, values []string
	id              string // the text of its key
	text            string // a column of text that is not part of the key, or ""
}

// rowOf returns a row of a table.
func rowOf(t *testing.T, db *sql.DB, table string) (row testRow) {
	t.Helper()
	rows, err := db.Query(`SELECT c.column_name, LOWER(c.data_type), COALESCE(c.character_maximum_length, 0), c.extra, COALESCE(s.seq_in_index, 0)
FROM information_schema.columns AS c LEFT JOIN information_schema.statistics AS s
ON s.table_schema = c.table_schema AND s.table_name = c.table_name AND s.column_name = c.column_name AND s.index_name = 'PRIMARY'
WHERE c.table_schema = DATABASE() AND c.table_name = ? ORDER BY s.seq_in_index, c.ordinal_position`, table)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var keys []string
	for rows.Next() {
		var name, kind, extra string
		var length int64
		var place int
		if err := rows.Scan(&name, &kind, &length, &extra, &place); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(strings.ToUpper(extra), "GENERATED") && !strings.Contains(strings.ToUpper(extra), "DEFAULT_GENERATED") {
			continue
		}
		v := valueOf(kind, int(min(length, 16)))
		row.columns, row.values = append(row.columns, capture.QuoteName(name)), append(row.values, v.sql)
		switch {
		case place > 0:
			keys = append(keys, v.id)
		case v.id == "1":
			row.text = capture.QuoteName(name)
		}
	}
	row.id = strings.Join(keys, ":")
	return row
}

// Names are data: odd ones of tables and columns are quoted in YAML, in SQL and in comments.
func TestMapDraftOddNames(t *testing.T) {
	t.Parallel()
	env := testenv.MySQL(t)
	execAll(t, env.DB,
		"CREATE TABLE `it's a: \"table\" # {x} - ?` (`id: \"1\"` INT PRIMARY KEY, `na'me` VARCHAR(20), `{y}` VARCHAR(20), `updated_at` DATETIME)",
		"CREATE TABLE `back``tick` (`i``d` BINARY(16) PRIMARY KEY, `parent ``?` INT, CONSTRAINT `odd ``key` FOREIGN KEY (`parent ``?`) REFERENCES `it's a: \"table\" # {x} - ?` (`id: \"1\"`) ON DELETE CASCADE)",
		"CREATE TABLE `new\nline` (id INT PRIMARY KEY, note TEXT)",
		"CREATE TABLE `lines` (id INT PRIMARY KEY, `a\nb` VARCHAR(20), updated_at DATETIME)",
		"CREATE TABLE `null` (`on` INT PRIMARY KEY, `yes` VARCHAR(20))",
		"CREATE TABLE `ÄÖÜ` (id INT PRIMARY KEY, name VARCHAR(20))",
		"CREATE TABLE orders (id INT PRIMARY KEY, name VARCHAR(20))",
		"CREATE TABLE `order` (id INT PRIMARY KEY, name VARCHAR(20))",
		"CREATE TABLE `key` (id INT PRIMARY KEY, app INT, name VARCHAR(20))",
		"CREATE TABLE `7 up` (`7` INT, id INT PRIMARY KEY, name VARCHAR(20), FOREIGN KEY (`7`) REFERENCES orders (id) ON DELETE CASCADE)",
		"CREATE TABLE linked (id INT PRIMARY KEY, `null` INT, FOREIGN KEY (`null`) REFERENCES orders (id) ON DELETE CASCADE)",
		"CREATE TABLE keyless (name VARCHAR(20))",
	)
	file := filepath.Join(t.TempDir(), "mapping.yaml")
	proveDraft(t, env.DB, drafted(t, env, file))
	text, err := os.ReadFile(file)
	for _, want := range []string{
		"  it_s_a_table_x:\n", "  orders:\n", "  table_2:\n", "neither a primary key nor", `linked: { entity: linked, id: id, params: { "null": "null" } }`, `"new\nline": `,
	} {
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%q is not in the draft (%v)", want, err)
		}
	}
}

// A foreign key that cannot be covered is left out of the tables that it reaches, and has one line.
// A cycle of foreign keys is covered.
func TestMapDraftOfAKeyToAnotherDatabase(t *testing.T) {
	t.Parallel()
	env, other := testenv.MySQL(t), testenv.MySQL(t)
	execAll(t, other.DB, "CREATE TABLE countries (id INT PRIMARY KEY)")
	execAll(t, env.DB,
		"CREATE TABLE channels (id INT PRIMARY KEY, domain_id INT)",
		"CREATE TABLE domains (id INT PRIMARY KEY, channel_id INT, country_id INT, FOREIGN KEY (channel_id) REFERENCES channels (id) ON DELETE CASCADE)",
		"ALTER TABLE channels ADD FOREIGN KEY (domain_id) REFERENCES domains (id) ON DELETE CASCADE",
		"ALTER TABLE domains ADD CONSTRAINT of_country FOREIGN KEY (country_id) REFERENCES "+other.Name+".countries (id) ON DELETE CASCADE",
		"CREATE TABLE wishes (id INT PRIMARY KEY, channel_id INT, FOREIGN KEY (channel_id) REFERENCES channels (id) ON DELETE CASCADE)",
		"CREATE TABLE cache (id INT PRIMARY KEY)",
	)
	r := call(t, map[string]string{"MYSQL_DSN": env.DSN}, "map", "draft")
	var got []string
	for line := range strings.Lines(r.err) {
		if strings.HasPrefix(line, "not ") {
			got = append(got, strings.TrimSpace(regexp.MustCompile(` \(ON .*?\)`).ReplaceAllString(line, "")))
		}
	}
	if want := []string{
		"not captured: cache: left out, since it has the name of a log, a queue or a copy; name it in --tables to have it",
		"not complete: channels, domains, wishes: the foreign key of_country from domains to countries: its parent is in another database",
	}; r.code != exitDone || !slices.Equal(got, want) {
		t.Errorf("code %d: %q", r.code, got)
	}
	execAll(t, env.DB, "ALTER TABLE domains DROP FOREIGN KEY of_country") // before the database of the parent
}

// Families of keys in use come with the entity that reaches them, and no name of a key is shown.
func TestMapDraftKeys(t *testing.T) {
	t.Parallel()
	env := testenv.MySQL(t)
	execAll(t, env.DB,
		"CREATE TABLE products (id INT PRIMARY KEY, name VARCHAR(20))",
		"CREATE TABLE categories (id BINARY(16) PRIMARY KEY, name VARCHAR(20))",
		"CREATE TABLE customers (id INT PRIMARY KEY, email VARCHAR(20))")
	var keys []string
	for i := range 30 {
		keys = append(keys, fmt.Sprintf("shop:product:%d", i), fmt.Sprintf("shop:category:a%031x:list:p%d", i, i%3), fmt.Sprintf("shop:weird%d", i),
			fmt.Sprintf("shop:products:newest:%d", i), fmt.Sprintf("shop:zorg:%d", i))
	}
	private := []string{"alice", "bob@example.com", "Carol-Smith", "+49123456", "5f4dcc3b5aa765d61d8327deb882cf99", "dave"}
	for _, name := range private {
		keys = append(keys, "shop:customer:"+name+":basket", "login:"+name, name, name)
		for i := range 30 {
			keys = append(keys, fmt.Sprintf("shop:session:%s:%d", name, i))
		}
	}
	keys = append(keys, "shop2:product:7", "shop:product:007", "shop:home", "unstale:beacon:1", "lock:fill:shop:product:1", "")
	want := []string{
		"product reaches: shop:product:<number> (30 keys)", "category reaches: shop:category:<hex>:list:p<number> (30 keys)",
		"product reaches: shop:products:", "no table explains: shop:home (1 key)", "no table explains: shop:<text>:<number> (30 keys)",
		"no table explains: shop:session:<text>:<number> (", "no table explains: shop<number>:product:<number> (1 key)", "no table explains: shop:product:<text> (1 key)",
	}
	inMap := []string{
		`keys: ["{app}:product:{id}"]`, `patterns: ["{app}:products:newest:*"]`, `patterns: ["{app}:category:{id}:list:p*"]`, "# - \"shop:<text>:<number>\" (30 keys)",
	}
	check := func(r result, where string) {
		t.Helper()
		text, err := os.ReadFile(where)
		if err != nil || r.code != exitDone {
			t.Fatalf("%v: %+v", err, r)
		}
		for _, name := range private {
			if strings.Contains(string(text)+r.out+r.err, name) {
				t.Errorf("%s shows in\n%s\n%s", name, text, r.err)
			}
		}
		for _, line := range want {
			if !strings.Contains(r.err, line) {
				t.Errorf("%q is not in\n%s", line, r.err)
			}
		}
		for _, line := range inMap {
			if !strings.Contains(string(text), line) {
				t.Errorf("%q is not in\n%s", line, text)
			}
		}
		if c := call(t, nil, "map", "check", where, "--mysql-dsn", env.DSN); c.code != exitDone {
			t.Errorf("%+v", c)
		}
	}
	vars := map[string]string{"MYSQL_DSN": env.DSN}
	file := filepath.Join(t.TempDir(), "mapping.yaml")
	check(call(t, vars, "map", "draft", "--app", "shop", "--keys", writeFile(t, strings.Join(keys, "\n")), "-o", file), file)

	server := testenv.Redis(t)
	for _, key := range keys {
		if err := server.Client.Set(t.Context(), key, "x", 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	check(call(t, vars, "map", "draft", "--app", "shop", "--redis-url", server.URL, "-o", file, "--force"), file)
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"-o", file}, exitUsage, file + " exists; give another file, or --force to overwrite it"},
		{[]string{"--keys", file, "--redis-url", server.URL}, exitUsage, "--keys and --redis-url; give one of them"},
		{[]string{"--keys", file, "--max-keys", "0"}, exitUsage, "--max-keys 0: must be 1 or more"},
		{[]string{"--keys", file, "--max-keys", "2"}, exitDone, "looked at 2 of "},
		{[]string{"--keys", "absent"}, exitFail, "open absent"},
		{[]string{"--tables", "absent*"}, exitFail, `--tables "absent*": the database has no such table`},
		{[]string{"--app", "a${HOME}"}, exitUsage, `--app "a${HOME}": a map would replace`},
		{[]string{"-o", filepath.Join(file, "x")}, exitFail, "not a directory"},
		{[]string{"--tables", "[a"}, exitFail, `--tables "[a": not a pattern`},
		{[]string{"--tables", "prod*,cust*,!customers", "--json"}, exitDone, `"table": "products"`},
	} {
		if r := call(t, vars, append([]string{"map", "draft"}, c.args...)...); r.code != c.code || !strings.Contains(r.out+r.err, c.want) || strings.Contains(r.out, `"table": "customers"`) {
			t.Errorf("%q: %+v", c.args, r)
		}
	}
}

// --diff shows what a changed schema adds to a map, unless a comment leaves it out.
func TestMapDraftDiff(t *testing.T) {
	t.Parallel()
	env := testenv.MySQL(t)
	execAll(t, env.DB,
		"CREATE TABLE products (id INT PRIMARY KEY, name VARCHAR(20), updated_at DATETIME)",
		"CREATE TABLE offers (id INT PRIMARY KEY, product INT, price INT, updated_at DATETIME)",
		"CREATE TABLE brands (id INT PRIMARY KEY, name VARCHAR(20))",
		"CREATE TABLE old_prices (id INT PRIMARY KEY, price INT)",
		"CREATE TABLE prices (id BINARY(16) PRIMARY KEY, cents INT, updated_at DATETIME)",
		"CREATE TABLE sessions (id INT PRIMARY KEY, data TEXT)")
	vars := map[string]string{"MYSQL_DSN": env.DSN}
	file := filepath.Join(t.TempDir(), "mapping.yaml")
	want := func(code int, lines ...string) {
		t.Helper()
		r := call(t, vars, "map", "draft", "--diff", file)
		var got []string
		for line := range strings.Lines(r.out) {
			got = append(got, strings.Join(strings.Fields(line)[:min(4, len(strings.Fields(line)))], " "))
		}
		if strings.Join(got, "\n") != strings.Join(lines, "\n") || r.code != code {
			t.Errorf("%+v\nwanted %q", r, lines)
		}
	}
	if r := call(t, vars, "map", "draft", "-o", file); r.code != exitDone {
		t.Fatalf("%+v", r)
	}
	want(exitDone)
	execAll(t, env.DB,
		"ALTER TABLE products ADD COLUMN color VARCHAR(20), ADD COLUMN views INT, DROP COLUMN name",
		"ALTER TABLE offers ADD COLUMN note TEXT, ADD COLUMN time INT, ADD CONSTRAINT of_product FOREIGN KEY (product) REFERENCES products (id) ON DELETE CASCADE",
		"ALTER TABLE brands ADD COLUMN logo TEXT",
		"ALTER TABLE prices ADD COLUMN `row` INT",
		"CREATE TABLE reviews (id INT PRIMARY KEY, stars INT)",
		"DROP TABLE old_prices")
	want(exitFail, "new column offers note", "new column offers time", "new foreign key offers", "new column prices row", "gone column products name", "new column products color", "new table reviews capture", "gone table old_prices remove")
	r := call(t, vars, "map", "draft", "--diff", file, "--json")
	if r.code != exitFail || !strings.Contains(r.out, `"state": "new foreign key"`) || !strings.Contains(r.err, file+": 8 differences from the tables") {
		t.Errorf("%+v", r)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	edited := strings.NewReplacer("  offers: {", "  # - note: not shown\n  # - product: not shown\n  # - time: not shown\n  offers: {", "watch: [name]", "watch: [color]", "watch: [cents]", "watch: [cents, row]", "  old_prices: { entity: old_price, id: id }\n", "",
		"# - sessions:", "# - reviews: nobody reads them\n# - sessions:").Replace(string(text))
	if err := os.WriteFile(file, []byte(edited), 0o600); err != nil {
		t.Fatal(err)
	}
	want(exitDone)
	if r := call(t, vars, "map", "draft", "--diff", file, "-o", file); r.code != exitUsage || !strings.Contains(r.err, "--diff and -o; give one of them") {
		t.Errorf("%+v", r)
	}
}

// A worker with the draft's map finds parents of parents by lookups, also by IDs that are bytes.
func TestMapDraftLookups(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	execAll(t, w.db,
		"CREATE TABLE product (id BINARY(16) PRIMARY KEY, name VARCHAR(20))",
		"CREATE TABLE product_media (id BINARY(16) PRIMARY KEY, product_id BINARY(16) NULL, url VARCHAR(20), FOREIGN KEY (product_id) REFERENCES product (id) ON DELETE CASCADE)",
		"CREATE TABLE product_media_size (id INT PRIMARY KEY, product_media_id BINARY(16) NOT NULL, width INT, FOREIGN KEY (product_media_id) REFERENCES product_media (id) ON DELETE CASCADE)",
		"CREATE TABLE product_media_size_text (size_id INT, lang CHAR(2), label VARCHAR(20), PRIMARY KEY (size_id, lang), FOREIGN KEY (size_id) REFERENCES product_media_size (id) ON DELETE CASCADE)",
		"INSERT INTO product VALUES (REPEAT(X'A1', 16), 'lamp'), (REPEAT(X'A2', 16), 'chair')",
		"INSERT INTO product_media VALUES (REPEAT(X'B1', 16), REPEAT(X'A1', 16), 'b1'), (REPEAT(X'B2', 16), REPEAT(X'A2', 16), 'b2')",
		"INSERT INTO product_media_size VALUES (7, REPEAT(X'B1', 16), 100), (8, REPEAT(X'B2', 16), 100)",
		"INSERT INTO product_media_size_text VALUES (7, 'en', 'small'), (8, 'en', 'small')")
	file := filepath.Join(t.TempDir(), "mapping.yaml")
	for _, args := range [][]string{{"map", "draft", "--app", "shop", "-o", file}, {"map", "check", file, "--mysql-dsn", w.env["MYSQL_DSN"]}, {"capture", "apply", "--map", file}} {
		if r := call(t, w.env, args...); r.code != exitDone {
			t.Fatalf("%+v", r)
		}
	}
	a1, a2 := strings.Repeat("a1", 16), strings.Repeat("a2", 16)
	b1, b2 := strings.Repeat("b1", 16), strings.Repeat("b2", 16)
	for _, c := range []struct {
		write string
		gone  []string
	}{
		{"UPDATE product_media_size_text SET label = 'large' WHERE size_id = 7", []string{"product:" + a1, "product_media:" + b1, "product_media_size:7", "product_media_size_text:7:en"}},
		{"UPDATE product_media SET product_id = REPEAT(X'A1', 16) WHERE id = REPEAT(X'B2', 16)", []string{"product:" + a1, "product:" + a2, "product_media:" + b2}},
		{"UPDATE product_media SET product_id = NULL WHERE id = REPEAT(X'B2', 16)", []string{"product:" + a1, "product_media:" + b2}},
		{"DELETE FROM product WHERE id = REPEAT(X'A1', 16)", []string{"product:" + a1, "product_media:" + b1, "product_media_size:7", "product_media_size_text:7:en"}},
	} {
		all := []string{"product:" + a1, "product:" + a2, "product_media:" + b1, "product_media:" + b2, "product_media_size:7", "product_media_size:8", "product_media_size_text:7:en", "product_media_size_text:8:en"}
		for _, key := range all {
			if err := w.redis.Set(t.Context(), "shop:"+key, "x", 0).Err(); err != nil {
				t.Fatal(err)
			}
		}
		execAll(t, w.db, c.write)
		w.start("--once", "--map", file).wantExit(exitDone)
		for _, key := range all {
			n, err := w.redis.Exists(t.Context(), "shop:"+key).Result()
			if err != nil || (n == 0) != slices.Contains(c.gone, key) {
				t.Errorf("after %s, %d keys %s exist (%v)", c.write, n, key, err)
			}
		}
	}
	if r := call(t, w.env, "dead", "list"); !strings.Contains(r.out, "no dead letters") {
		t.Errorf("%+v", r)
	}
}
