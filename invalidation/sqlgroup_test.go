package invalidation_test

import (
	"strings"
	"testing"

	"github.com/unstale/unstale/internal/sqltext"
	"github.com/unstale/unstale/invalidation"
)

// A lookup is asked for several IDs together only if its GROUP BY and windows keep the rows of each
// ID apart.
func TestSQLThatKeepsIDsApart(t *testing.T) {
	t.Parallel()
	for sql, want := range map[string]string{
		"SELECT a, b FROM t WHERE a IN (?)":                                                                                                                                    "",
		"SELECT a, MAX(b) FROM t WHERE a IN (?) GROUP BY a":                                                                                                                    "",
		"SELECT t.a, MAX(b) FROM t WHERE t.a IN (?) GROUP BY a HAVING MAX(b) > 1":                                                                                              "",
		"SELECT a, MAX(b) FROM t WHERE a IN (?) GROUP BY c, t.`A` ORDER BY 1":                                                                                                  "",
		"SELECT t.a AS id, MAX(b) FROM t WHERE t.a IN (?) GROUP BY id":                                                                                                         "",
		"SELECT t.a id, MAX(b) FROM t WHERE t.a IN (?) GROUP BY 1":                                                                                                             "",
		"SELECT a, MAX(b) OVER (PARTITION BY a) FROM t WHERE a IN (?)":                                                                                                         "",
		"SELECT a, FIRST_VALUE(b) OVER w FROM t WHERE a IN (?) WINDOW w AS (PARTITION BY a ORDER BY b)":                                                                        "",
		"SELECT LOWER(HEX(t.a)), MAX(b) FROM t WHERE t.a IN (UNHEX(?)) GROUP BY t.a":                                                                                           "",
		"SELECT LOWER(HEX(a)) id, MAX(b) OVER (PARTITION BY a) FROM t WHERE a IN (UNHEX(REPLACE(?, '-', '')))":                                                                 "",
		"SELECT x.a, x.b FROM (SELECT HEX(a) a, MAX(b) b FROM t WHERE a IN (UNHEX(?)) GROUP BY a) x":                                                                           "",
		"SELECT LOWER(HEX(a)), MAX(b) FROM t WHERE a IN (UNHEX(?)) GROUP BY c":                                                                                                 "a",
		"SELECT HEX(t.a), MAX(b) FROM t JOIN u USING (c) WHERE t.a IN (UNHEX(?)) GROUP BY u.a":                                                                                 "t.a",
		"SELECT HEX(a), MAX(b) OVER () FROM t WHERE a IN (UNHEX(?))":                                                                                                           "a",
		"SELECT HEX(a), MAX(b) FROM t WHERE HEX(a) IN (F(?)) GROUP BY b":                                                                                                       "a",
		"SELECT x.a, x.b FROM (SELECT a, MAX(b) b FROM t WHERE a IN (?) GROUP BY a) x":                                                                                         "",
		"WITH u AS (SELECT a, MAX(b) b FROM t WHERE (a) IN (?) GROUP BY a) SELECT a, b FROM u":                                                                                 "",
		"SELECT a, b FROM t JOIN (SELECT c, COUNT(*) n FROM u GROUP BY c) v ON v.c = b WHERE a IN (?)":                                                                         "",
		"SELECT a, b FROM t WHERE a IN (?) UNION SELECT c, d FROM u GROUP BY c, d":                                                                                             "",
		"SELECT a, (SELECT MAX(c) FROM u WHERE u.a = t.a GROUP BY d) FROM t WHERE a IN (?)":                                                                                    "",
		"SELECT MIN(a), b FROM t WHERE a IN (?) GROUP BY b":                                                                                                                    "MIN(a)",
		"SELECT ANY_VALUE(a), b FROM t WHERE a IN (?) GROUP BY b":                                                                                                              "ANY_VALUE(a)",
		"SELECT a, b FROM t WHERE a IN (?) GROUP BY b":                                                                                                                         "a",
		"SELECT a, MAX(b) FROM t WHERE a IN (?) GROUP BY a + 0":                                                                                                                "a",
		"SELECT a + 0, MAX(b) FROM t WHERE a IN (?) GROUP BY a":                                                                                                                "a+0",
		"SELECT a, MAX(b) FROM t WHERE a IN (?) GROUP BY 2":                                                                                                                    "a",
		"SELECT a, MAX(b) FROM t WHERE a IN (?) GROUP BY a WITH ROLLUP":                                                                                                        "a",
		"SELECT t.a, MAX(b) FROM t JOIN u USING (c) WHERE t.a IN (?) GROUP BY u.a":                                                                                             "t.a",
		"SELECT a, MAX(b) OVER () FROM t WHERE a IN (?)":                                                                                                                       "a",
		"SELECT a, ROW_NUMBER() OVER (ORDER BY b) FROM t WHERE a IN (?)":                                                                                                       "a",
		"SELECT a, ROW_NUMBER() OVER (PARTITION BY b ORDER BY a) FROM t WHERE a IN (?)":                                                                                        "a",
		"SELECT a, FIRST_VALUE(b) OVER w FROM t WHERE a IN (?) WINDOW w AS (ORDER BY b)":                                                                                       "a",
		"SELECT a, b FROM (SELECT a, b, ROW_NUMBER() OVER (ORDER BY b) n FROM t WHERE a IN (?)) x WHERE n < 3":                                                                 "a",
		"WITH u AS (SELECT MIN(a) a, b FROM t WHERE a IN (?) GROUP BY b) SELECT a, b FROM u":                                                                                   "a",
		"WITH u AS (SELECT a, b FROM t WHERE a IN (?)) SELECT MIN(a), b FROM u GROUP BY b":                                                                                     "MIN(a)",
		"SELECT a, b FROM (SELECT MIN(x.a) a, b FROM (SELECT a, b FROM t WHERE a IN (?)) x GROUP BY b) y":                                                                      "the columns with the ID",
		"WITH u AS (SELECT a, b FROM t WHERE a IN (?)) SELECT u.a, u.b FROM u JOIN v ON v.a = u.a":                                                                             "",
		"with recursive u (a, b, c) as (SELECT a, b, 1 FROM t WHERE a IN (?) UNION ALL SELECT u.a, t.b, c + 1 FROM u JOIN t ON t.a = u.b), v AS (SELECT 1) SELECT a, b FROM u": "",
		"WITH u AS (SELECT a, b FROM t WHERE a IN (?)) SELECT a, b FROM u WHERE NOT EXISTS (SELECT 1 FROM u v WHERE v.b > u.b)":                                                "u is read more than once",
		"WITH u (a, b) AS (SELECT a, b FROM t WHERE a IN (?)) SELECT x.a, x.b FROM u x, `U` y WHERE x.b > y.b":                                                                 "u is read more than once",
		"SELECT a, b FROM t WHERE a IN (?) UNION SELECT MIN(a), b FROM u GROUP BY b":                                                                                           "MIN(a)",
	} {
		got := invalidation.TogetherFault(sqltext.Tokens(sql), 1)
		if (got == "") != (want == "") || want != "" && !strings.Contains(got, want) {
			t.Errorf("%s: %q, wanted %q", sql, got, want)
		}
	}
	for sql, ok := range map[string]bool{
		"SELECT a, b, MAX(c) FROM t WHERE (a, b) IN (?) GROUP BY b, a":                                          true,
		"SELECT a, b, MAX(c) FROM t WHERE (a, b) IN (?) GROUP BY a":                                             false,
		"SELECT a, b, c FROM (SELECT a, b, MAX(c) c FROM t WHERE (t.a, t.b) IN (?) GROUP BY t.a, t.b) x":        true,
		"SELECT a, b, c FROM (SELECT a, MAX(b) b, c FROM t WHERE (t.a, t.b) IN (?) GROUP BY t.a, t.c) x":        false,
		"SELECT a, b, SUM(c) OVER (PARTITION BY a, b), SUM(d) OVER (PARTITION BY a) FROM t WHERE (a, b) IN (?)": false,
	} {
		if got := invalidation.TogetherFault(sqltext.Tokens(sql), 2); (got == "") != ok {
			t.Errorf("%s: %q", sql, got)
		}
	}
}
