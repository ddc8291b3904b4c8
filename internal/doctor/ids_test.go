package doctor

import (
	"strings"
	"testing"
)

// The query for IDs has the tables and conditions of the SELECT that the ? belongs to.
func TestIDQuery(t *testing.T) {
	t.Parallel()
	for sql, want := range map[string]string{
		"SELECT a, b FROM t WHERE a IN (?)":                                                                                                  "SELECT DISTINCT a FROM t WHERE a IN (a)",
		"SELECT x.a, b FROM t AS x WHERE b > 1 AND x.a IN (?) OR c GROUP BY b ORDER BY c":                                                    "SELECT DISTINCT x.a FROM t AS x WHERE b > 1 AND x.a IN (x.a) OR c",
		"SELECT a, b, c FROM t WHERE (a, `b`) in ( ? ) -- the end":                                                                           "SELECT DISTINCT a, `b` FROM t WHERE (a, `b`) in ( (a, `b`) )",
		"SELECT a, b FROM t JOIN u ON u.a = t.a AND `s`.`t`.`a` IN (?) /* the end":                                                           "SELECT DISTINCT `s`.`t`.`a` FROM t JOIN u ON u.a = t.a AND `s`.`t`.`a` IN (`s`.`t`.`a`)",
		"SELECT a, b FROM t WHERE (x = 1 AND (y OR BIN_TO_UUID(t.a) IN (?))) ORDER BY t.`order`":                                             "SELECT DISTINCT BIN_TO_UUID(t.a) FROM t WHERE (x = 1 AND (y OR BIN_TO_UUID(t.a) IN (BIN_TO_UUID(t.a))))",
		"WITH RECURSIVE u (a, b) AS (SELECT a, b FROM t WHERE a IN (?) UNION SELECT u.a, t.b FROM u JOIN t ON t.a = u.b) SELECT a, b FROM u": "SELECT DISTINCT a FROM t WHERE a IN (a)",
		"WITH u AS (SELECT 1) SELECT a, b FROM u, t WHERE a IN (?)":                                                                          "WITH u AS (SELECT 1) SELECT DISTINCT a FROM u, t WHERE a IN (a)",
		"WITH u AS (SELECT 1) SELECT c, d FROM u UNION SELECT a, b FROM t WHERE a IN (?)":                                                    "WITH u AS (SELECT 1) SELECT DISTINCT a FROM t WHERE a IN (a)",
		"SELECT c, d FROM u WHERE EXISTS (SELECT 1 FROM t WHERE t.group = 1 AND a NOT IN (?)) AND 1":                                         "",
		"SELECT x, y FROM (SELECT EXTRACT(YEAR FROM d) x, y FROM t WHERE NOT a IN (?) AND t.group = 2 LIMIT 1) z WHERE 1":                    "SELECT DISTINCT a FROM t WHERE NOT a IN (a) AND t.group = 2",
		"SELECT LOWER(HEX(t.a)) AS id, b FROM t JOIN u USING (c) WHERE t.a IN (UNHEX(?)) AND b > '(' GROUP BY a":                             "SELECT DISTINCT LOWER(HEX(t.a)) AS id FROM t JOIN u USING (c) WHERE t.a IN (t.a) AND b > '('",
		"SELECT DISTINCT HEX(a), b FROM t WHERE a IN (UNHEX(REPLACE(?, '-', '')))":                                                           "SELECT DISTINCT HEX(a) FROM t WHERE a IN (a)",
		"WITH u AS (SELECT a, b FROM t WHERE a IN (UNHEX(?))) SELECT LOWER(HEX(a)), b FROM u":                                                "SELECT DISTINCT LOWER(HEX(a)) FROM t WHERE a IN (a)",
		"WITH u AS (SELECT a, b FROM t WHERE a IN (F(?))) SELECT a, b FROM u":                                                                "",
		"SELECT a, b FROM t WHERE a = ?":                                                                                                     "",
		"SELECT a, b FROM t WHERE a IN (SELECT ?)":                                                                                           "",
		"SELECT a, b FROM t WHERE a + 1 IN (?)":                                                                                              "",
		"SELECT a IN (?), b FROM t":                                                                                                          "",
		"SELECT 1, 2 WHERE 1 IN (?)":                                                                                                         "",
		"SELECT (a) IN (?), b FROM t WHERE c":                                                                                                "",
		"SELECT a, b FROM t WHERE FIND_IN_SET(a, ?)":                                                                                         "",
		"SELECT a, b FROM t WHERE CASE WHEN (a) IN (?) THEN 1 END":                                                                           "",
		") IN (?)": "", "(a) IN (?)": "", "WHERE a IN (?)": "", "a IN (?)": "", "?": "", "": "",
	} {
		got, ok := idQuery(sql)
		got = strings.TrimSuffix(got, "\nLIMIT 20")
		if got != want || ok != (want != "") {
			t.Errorf("%s:\n got %q\nwanted %q", sql, got, want)
		}
	}
}

// No text makes it fail, and what it returns has a limit.
func FuzzIDQuery(f *testing.F) {
	for _, sql := range []string{
		"WITH u AS (SELECT 1) SELECT a, b FROM u, t WHERE (a, `b`) IN (?) GROUP BY a", "SELECT a FROM (SELECT f(x.y) FROM t WHERE .a IN (?))", "FROM WHERE a IN (?)", "SELECT a FROM t WHERE a IN (F(?))", "WITH u AS (SELECT FROM t WHERE a IN (UNHEX(?))) SELECT (a, b",
		")))(( WHERE a.) IN (?) UNION", "SELECT FROM AND (a) IN (?) /* LIMIT", "SELECT FROM ON . IN (?)", "SELECT FROM ( IN (?)", "SELECT FROM AN&(IN(?)0",
	} {
		f.Add(sql)
	}
	f.Fuzz(func(t *testing.T, sql string) {
		query, ok := idQuery(sql)
		if ok != strings.HasSuffix(query, "\nLIMIT 20") || ok == (query == "") {
			t.Errorf("%q: %q, %t", sql, query, ok)
		}
	})
}
