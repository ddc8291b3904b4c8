package migrations_test

import (
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/unstale/unstale/internal/schema"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/migrations"
)

// A layout is the part of the schema that the previous binary relies on: columns and indexes by
// table and name, as text.
type layout struct {
	tables           map[string]bool
	columns, indexes map[string]string
	needed           map[string]bool // columns that each INSERT has to give
}

// tableOf returns the table of "table.name".
func tableOf(name string) string { table, _, _ := strings.Cut(name, "."); return table }

func readLayout(t *testing.T, db *sql.DB) layout {
	t.Helper()
	l := layout{map[string]bool{}, map[string]string{}, map[string]string{}, map[string]bool{}}
	read := func(query string, row func(name, text string, needed bool)) {
		t.Helper()
		rows, err := db.QueryContext(t.Context(), query)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = rows.Close() }() // rows.Err reports what went wrong
		for rows.Next() {
			var name, text string
			var needed bool
			if err := rows.Scan(&name, &text, &needed); err != nil {
				t.Fatal(err)
			}
			row(name, text, needed)
		}
		if err := rows.Err(); err != nil {
			t.Fatal(err)
		}
	}
	read(`SELECT CONCAT(table_name, '.', column_name),
CONCAT_WS(' ', column_type, collation_name, IF(is_nullable = 'YES', 'NULL', 'NOT NULL'), CONCAT('DEFAULT ', column_default), extra),
is_nullable = 'NO' AND column_default IS NULL AND extra NOT LIKE '%auto_increment%' AND extra NOT LIKE '%GENERATED%'
FROM information_schema.columns WHERE table_schema = DATABASE()`, func(name, text string, needed bool) {
		l.tables[tableOf(name)], l.columns[name], l.needed[name] = true, text, needed
	})
	read(`SELECT CONCAT(table_name, '.', index_name), CONCAT(IF(MIN(non_unique) = 0, 'UNIQUE ', ''),
GROUP_CONCAT(COALESCE(column_name, '?'), IF(sub_part IS NULL, '', CONCAT('(', sub_part, ')')) ORDER BY seq_in_index)), 0
FROM information_schema.statistics WHERE table_schema = DATABASE() GROUP BY table_name, index_name`, func(name, text string, _ bool) {
		l.indexes[name] = text
	})
	return l
}

// breaks lists what a step did that the previous binary may not survive.
func breaks(before, after layout) (list []string) {
	for kind, pair := range map[string][2]map[string]string{"column": {before.columns, after.columns}, "index": {before.indexes, after.indexes}} {
		for name, text := range pair[0] {
			switch now, there := pair[1][name]; {
			case !there:
				list = append(list, fmt.Sprintf("%s %s is gone", kind, name))
			case now != text:
				list = append(list, fmt.Sprintf("%s %s was %q, and is %q", kind, name, text, now))
			}
		}
	}
	for name := range after.columns {
		if _, old := before.columns[name]; !old && after.needed[name] && before.tables[tableOf(name)] {
			list = append(list, fmt.Sprintf("column %s is new, NOT NULL and without a default", name))
		}
	}
	for name, text := range after.indexes {
		if _, old := before.indexes[name]; !old && strings.HasPrefix(text, "UNIQUE ") && before.tables[tableOf(name)] {
			list = append(list, fmt.Sprintf("index %s is new, and refuses rows", name))
		}
	}
	slices.Sort(list)
	return list
}

// TestEachFileOnlyAdds compares the tables before and after each file that follows the baseline. Only
// a file that raises the oldest code may do more than add.
func TestEachFileOnlyAdds(t *testing.T) {
	t.Parallel()
	ctx, db := t.Context(), testenv.MySQL(t).DB
	p, err := migrations.Provider(db)
	if err != nil {
		t.Fatal(err)
	}
	for _, source := range p.ListSources() {
		if source.Version <= schema.Baseline {
			if _, err := p.UpByOne(ctx); err != nil {
				t.Fatal(err)
			}
			continue
		}
		before := readLayout(t, db)
		needed, err := schema.Oldest(ctx, db)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.UpByOne(ctx); err != nil {
			t.Fatal(err)
		}
		now, err := schema.Oldest(ctx, db)
		if err != nil {
			t.Fatal(err)
		}
		after := readLayout(t, db)
		if maps.Equal(before.columns, after.columns) && maps.Equal(before.indexes, after.indexes) {
			t.Errorf("%s changes nothing that this test sees", source.Path)
		}
		list := breaks(before, after)
		if now == needed && len(list) > 0 {
			t.Errorf("%s breaks the previous binary:\n%s", source.Path, strings.Join(list, "\n"))
		}
	}
}

// The comparison finds each step that may break the previous binary, and no other.
func TestBreaks(t *testing.T) {
	t.Parallel()
	db := testenv.MySQL(t).DB
	if _, err := migrations.Up(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct{ ddl, want string }{
		{"ALTER TABLE cache_outbox_workers ADD COLUMN a INT NULL, ADD COLUMN b INT NOT NULL DEFAULT 3, ADD INDEX c (a)", ""},
		{"CREATE TABLE cache_outbox_more (id BIGINT AUTO_INCREMENT PRIMARY KEY, a INT NOT NULL, UNIQUE (a))", ""},
		{"ALTER TABLE cache_outbox_workers COMMENT = 'nobody reads this', MODIFY COLUMN a INT NULL COMMENT 'nor this'", ""},
		{"ALTER TABLE cache_outbox_workers ADD COLUMN d INT NOT NULL", "column cache_outbox_workers.d is new, NOT NULL and without a default"},
		{"ALTER TABLE cache_outbox_workers ADD UNIQUE e (a)", "index cache_outbox_workers.e is new, and refuses rows"},
		{"ALTER TABLE cache_outbox_workers MODIFY COLUMN a VARCHAR(20) NULL", "column cache_outbox_workers.a was "},
		{"ALTER TABLE cache_outbox_workers MODIFY COLUMN a VARCHAR(20) NOT NULL DEFAULT ''", "column cache_outbox_workers.a was "},
		{"ALTER TABLE cache_outbox_workers ALTER COLUMN b SET DEFAULT 4", "column cache_outbox_workers.b was "},
		{"ALTER TABLE cache_outbox_workers RENAME COLUMN b TO f", "column cache_outbox_workers.b is gone"},
		{"ALTER TABLE cache_outbox_workers DROP INDEX c", "index cache_outbox_workers.c is gone"},
		{"ALTER TABLE cache_outbox_workers DROP INDEX e, ADD INDEX e (f)", `index cache_outbox_workers.e was "UNIQUE a", and is "f"`},
		{"ALTER TABLE cache_outbox_workers DROP COLUMN d", "column cache_outbox_workers.d is gone"},
		{"DROP TABLE cache_outbox_more", "column cache_outbox_more.a is gone\ncolumn cache_outbox_more.id is gone\nindex cache_outbox_more.PRIMARY is gone\nindex cache_outbox_more.a is gone"},
	} {
		before := readLayout(t, db)
		if _, err := db.Exec(step.ddl); err != nil {
			t.Fatalf("%s: %v", step.ddl, err)
		}
		got := strings.Join(breaks(before, readLayout(t, db)), "\n")
		if step.want == "" && got != "" || !strings.HasPrefix(got, step.want) || step.want != "" && strings.Count(got, "\n") != strings.Count(step.want, "\n") {
			t.Errorf("%s: found %q, wanted %q", step.ddl, got, step.want)
		}
	}
}
