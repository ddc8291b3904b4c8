package capture_test

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/unstale/unstale/internal/servers"
)

// Every column type, with the text that a client reads and a program writes into a row.
var types = []struct {
	column, value, other string
	refused              bool // there is no such text
}{
	{"TINYINT", "-128", "127", false},
	{"TINYINT UNSIGNED", "255", "0", false},
	{"BOOLEAN", "TRUE", "FALSE", false},
	{"SMALLINT", "-32768", "1", false},
	{"MEDIUMINT", "-8388608", "1", false},
	{"INT", "-2147483648", "1", false},
	{"INT(8) ZEROFILL", "42", "43", false},
	{"BIGINT", "-9223372036854775808", "9223372036854775807", false},
	{"BIGINT UNSIGNED", "18446744073709551615", "18446744073709551614", false},
	{"DECIMAL(30,10)", "1.10", "1.1000000001", false},
	{"FLOAT", "0.1", "0.2", true},
	{"DOUBLE", "0.1", "0.2", true},
	{"BIT(9)", "b'100000001'", "b'1'", true},
	{"CHAR(10)", "'été'", "'ete'", false},
	{"VARCHAR(10)", "'a\\\\\"b '", "'a\\\\\"b'", false},
	{"VARCHAR(10) CHARACTER SET latin1", "'été'", "'ete'", false},
	{"VARCHAR(10) CHARACTER SET utf16", "'été😀'", "'ete'", false},
	{"TINYTEXT", "'\\n\\t\\0'", "''", false},
	{"TEXT", "'{\"a\": [1, 2]}'", "'{}'", false},
	{"MEDIUMTEXT", "'x'", "'X'", false},
	{"LONGTEXT", "'x'", "'X'", false},
	{"ENUM('a','é')", "'é'", "'a'", false},
	{"SET('a','b')", "'a,b'", "'b'", false},
	{"BINARY(3)", "'a'", "'b'", true},
	{"VARBINARY(3)", "'a'", "'A'", true},
	{"TINYBLOB", "'a'", "'A'", true},
	{"BLOB", "'a'", "'A'", true},
	{"MEDIUMBLOB", "'a'", "'A'", true},
	{"LONGBLOB", "'a'", "'A'", true},
	{"DATE", "'2026-02-28'", "'2026-02-27'", false},
	{"DATETIME", "'2026-02-28 23:59:59'", "'2026-02-28 23:59:58'", false},
	{"DATETIME(6)", "'2026-02-28 23:59:59.5'", "'2026-02-28 23:59:59.500001'", false},
	{"TIME", "'-838:59:59'", "'0:0:1'", false},
	{"TIME(3)", "'10:00:00.5'", "'10:00:00.501'", false},
	{"TIMESTAMP NULL", "'2026-02-28 23:59:59'", "'2026-02-28 23:59:58'", true},
	{"YEAR", "2026", "2027", false},
	{"JSON", "'{\"a\": 1}'", "'{\"a\": 2}'", true},
	{"GEOMETRY", "ST_GeomFromText('POINT(1 1)')", "ST_GeomFromText('POINT(1 2)')", true},
	{"POINT", "ST_GeomFromText('POINT(1 1)')", "ST_GeomFromText('POINT(1 2)')", true},
}

// A trigger writes the value of each type as a client reads it, or refuses the column and names a
// fix. It detects each change and nothing else.
func TestTypes(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	all := slices.Clone(types)
	if s.Flavor == servers.KindMariaDB {
		for i, c := range all {
			if c.column == "JSON" { // another name of LONGTEXT
				all[i].refused = false
			}
		}
		all = append(all, types[0])
		all[len(all)-1].column, all[len(all)-1].value, all[len(all)-1].other = "UUID", "'6ccd780c-baba-1026-9564-5b8c656024db'", "'6ccd780c-baba-1026-9564-5b8c656024dc'"
	}
	for i, c := range all {
		table := fmt.Sprintf("t%d", i)
		s.exec(fmt.Sprintf("CREATE TABLE %s (id INT PRIMARY KEY, v %s) DEFAULT CHARACTER SET utf8mb4", table, c.column))
		section := "  " + table + ": {entity: product, id: id, params: {value: v}}\n"
		if c.refused {
			_, err := s.capturer(section).Plan(t.Context())
			if err == nil {
				t.Fatalf("%s is not refused", c.column)
			}
			wantCure(t, s, err, c.column, table, c.value)
			section = "  " + table + ": {entity: product, id: id, watch: [v]}\n"
		}
		s.apply(section)
		s.exec(fmt.Sprintf("INSERT INTO %s VALUES (1, %s)", table, c.value))
		if !c.refused {
			wantAsRead(t, s, c.column, table)
		}
		s.rows()
		s.want(fmt.Sprintf("UPDATE %s SET v = %s", table, c.value))
		s.want(fmt.Sprintf("UPDATE %s SET v = v", table))
		for _, value := range []string{c.other, c.value, "NULL", c.value} {
			s.exec(fmt.Sprintf("UPDATE %s SET v = %s", table, value))
			if n := len(s.rows()); n != 1 {
				t.Errorf("%s becomes %s: %d rows", c.column, value, n)
			}
		}
		s.want(fmt.Sprintf("UPDATE %s SET v = v", table))
		s.exec("DROP TABLE " + table)
	}
}

// wantCure applies the expression that an error names, which must give a value.
func wantCure(t *testing.T, s *shop, refused error, column, table, value string) {
	t.Helper()
	_, cure, ok := strings.Cut(refused.Error(), "give an expression, such as ")
	cure, _, _ = strings.Cut(cure, ", or ")
	quoted, err := json.Marshal(cure) // JSON is YAML
	if !ok || err != nil {
		t.Fatalf("%s: %v, %v", column, refused, err)
	}
	s.apply("  " + table + ": {entity: product, id: " + string(quoted) + ", on: [insert]}\n")
	s.exec(fmt.Sprintf("INSERT INTO %s VALUES (1, %s)", table, strings.ReplaceAll(value, `"a"`, `"sku"`)), "DELETE FROM "+table)
	if n := len(s.rows()); n != 1 {
		t.Errorf("%s by %s: %d rows", column, cure, n)
	}
}

// wantAsRead compares the value in the row with the text that a client reads.
func wantAsRead(t *testing.T, s *shop, column, table string) {
	t.Helper()
	plain, err := sql.Open("mysql", strings.Replace(s.DSN, "parseTime=true", "parseTime=false", 1))
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	var text, params string
	if err := plain.QueryRow("SELECT v FROM " + table).Scan(&text); err != nil {
		t.Fatal(err)
	}
	if err := s.DB.QueryRow("SELECT params FROM cache_outbox").Scan(&params); err != nil {
		t.Fatalf("%s: %v", column, err)
	}
	var got struct{ Value []any }
	if err := json.Unmarshal([]byte(params), &got); err != nil || len(got.Value) != 1 {
		t.Fatalf("%s: params %s, %v", column, params, err)
	}
	if strings.Contains(column, "ZEROFILL") {
		text = strings.TrimLeft(text, "0") // the number, which a program reads
	}
	if got.Value[0] != text {
		t.Errorf("%s: the row says %q, a client reads %q", column, got.Value[0], text)
	}
}

// A trigger detects a change that a client sees, even if the server treats both values as equal or
// as unknown.
func TestZeros(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	conn := s.conn()
	s.do(conn, "SET sql_mode = ''")
	var negative string // zero; MariaDB since 10.11.19 has no negative zero
	if err := conn.QueryRowContext(t.Context(), "SELECT CAST(-0e0 AS CHAR)").Scan(&negative); err != nil {
		t.Fatal(err)
	}
	for i, c := range []struct {
		column string
		values []string // each differs from the previous one
	}{
		{"TIMESTAMP NULL", []string{"NULL", "'0000-00-00 00:00:00'", "NULL", "'1970-01-01 00:00:01'", "'0000-00-00 00:00:00'"}},
		{"TIMESTAMP(6) NULL", []string{"NULL", "'0000-00-00 00:00:00'", "NULL", "'2026-01-01 00:00:00'", "'2026-01-01 00:00:00.000001'"}},
		{"DATETIME", []string{"NULL", "'0000-00-00 00:00:00'", "NULL"}},
		{"DATE", []string{"NULL", "'0000-00-00'", "NULL"}},
		{"TIME", []string{"NULL", "'00:00:00'", "NULL"}},
		{"YEAR", []string{"NULL", "0", "NULL", "2000"}},
		{"DOUBLE", []string{"NULL", "0", "-0e0", "0", "NULL", "-0e0"}},
		{"FLOAT", []string{"NULL", "0", "-0e0", "0", "1.0000001", "1.0000002"}},
		{"DECIMAL(5,2)", []string{"NULL", "0", "NULL"}},
		{"INT", []string{"NULL", "0", "NULL"}},
		{"BIT(1)", []string{"NULL", "0", "NULL", "1"}},
		{"BINARY(2)", []string{"NULL", "'\\0\\0'", "NULL"}},
		{"VARCHAR(2)", []string{"NULL", "''", "'\\0'", "NULL"}},
	} {
		table := fmt.Sprintf("z%d", i)
		s.exec(fmt.Sprintf("CREATE TABLE %s (id INT PRIMARY KEY, v %s)", table, c.column))
		s.apply("  " + table + ": {entity: product, id: id, watch: [v]}\n")
		s.do(conn, fmt.Sprintf("INSERT INTO %s VALUES (1, %s)", table, c.values[0]))
		s.rows()
		for i, value := range c.values[1:] {
			wants := []int{1, 0}
			if before := c.values[i]; negative == "0" && before != "NULL" && (before == "-0e0" || value == "-0e0") {
				wants[0] = 0
			}
			for _, want := range wants {
				s.do(conn, fmt.Sprintf("UPDATE %s SET v = %s", table, value))
				if n := len(s.rows()); n != want {
					t.Errorf("%s: %s becomes %s: %d rows, wanted %d", c.column, c.values[i], value, n, want)
				}
			}
		}
	}
}
