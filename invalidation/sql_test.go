package invalidation_test

import (
	"strings"
	"testing"

	"github.com/unstale/unstale/invalidation"
)

func TestSQLAccepted(t *testing.T) {
	t.Parallel()
	for sql, by := range map[string]int{
		"SELECT a, b FROM t WHERE a IN (?)":                                        1,
		"select distinct a, b from t where a in (?)":                               1,
		"SELECT ALL a, b FROM t WHERE a IN (?)":                                    1,
		"SELECT t.a, COALESCE(t.b, 1, 2) FROM t WHERE t.a IN (?)":                  1,
		"SELECT a, EXTRACT(YEAR FROM b) FROM t WHERE a IN (?)":                     1,
		"SELECT a, b * 2, c FROM t WHERE (a, b) IN (?)":                            2,
		"SELECT a, (SELECT max(c) FROM u) FROM t WHERE a IN (?)":                   1,
		"/* , * */ SELECT a, -- , *\n b # ;\n FROM t WHERE a IN (?)":               1,
		"SELECT a, b FROM t WHERE a IN (?) AND c <> ';' AND d = \"FOR UPDATE\"":    1,
		"SELECT `a,b`, 'it''s, \\', ok' FROM t WHERE `into` IN (?)":                1,
		"SELECT a, b FROM t FORCE INDEX FOR JOIN (i) WHERE a IN (?) -- the end":    1,
		"SELECT a, b FROM t WHERE a IN (?) --":                                     1,
		"SELECT a, 1--1 FROM t WHERE a IN (?)":                                     1,
		"\n SELECT a, b FROM t WHERE a IN (?) UNION SELECT c, d FROM u /* the end": 1,
		"WITH u AS (SELECT a, b FROM t WHERE a IN (?)) SELECT a, b FROM u":         1,
		"with recursive u (a, b, c) as (SELECT a, b, 1 FROM t WHERE a IN (?) UNION ALL SELECT u.a, t.b, c + 1 FROM u JOIN t ON t.a = u.b), v AS (SELECT 1) SELECT a, b FROM u": 1,
		"SELECT a, \"b`c'd\", 'é' FROM é WHERE (a, x) IN (?) # the end, with no line":                                                                                          2,
	} {
		if faults, batch := invalidation.SQLFaults(sql, by, 1); len(faults)+len(batch) > 0 {
			t.Errorf("%s: %v %v", sql, faults, batch)
		}
	}
}

func TestSQLRefused(t *testing.T) {
	t.Parallel()
	for _, sql := range []string{
		"SELECT *, b FROM t WHERE a IN (?)", "SELECT DISTINCT * FROM t WHERE a IN (?)", "SELECT a, t.* FROM t WHERE a IN (?)",
		"SELECT a, b, c FROM t WHERE a IN (?)", "SELECT ?", "(SELECT a, b FROM t WHERE a IN (?))",
		"SELECT a, b FROM t WHERE a IN (?) for share", "SELECT a, b FROM t WHERE a IN ('?')", "SELECT a, b FROM t -- WHERE a IN (?)",
		"SELECTED a, b FROM t WHERE a IN (?)", "SELECT a, 'b FROM t WHERE a IN (?)",
		"WITH u AS (SELECT a FROM t WHERE a IN (?)) UPDATE t, u SET t.b = 1", "WITH u AS (SELECT a FROM t WHERE a IN (?)) DELETE FROM t", "WITH u AS (SELECT a, b FROM t WHERE a IN (?)) SELECT a FROM u",
		"WITH u AS (SELECT a, b FROM t WHERE a IN (?)) SELECT * FROM u", "WITH", "WITH u AS (SELECT a, b FROM t WHERE a IN (?))", "UPDATE t SELECT a, b FROM t WHERE a IN (?)",
		"WITH u AS (SELECT a FROM t WHERE a IN (?)) UPDATE t SET b = (SELECT a, b FROM t) SELECT a, b FROM t", "-- SELECT a, b FROM t WHERE a IN (?)",
	} {
		if faults, _ := invalidation.SQLFaults(sql, 1, 1); len(faults) == 0 {
			t.Errorf("%s: accepted", sql)
		}
	}
}

// A statement that is right for one ID and wrong for several is found, and a right one is not.
func TestSQLForSeveralIDs(t *testing.T) {
	t.Parallel()
	for sql, want := range map[string]string{
		"SELECT a, b FROM t WHERE a IN (?) LIMIT 1":                                                             "LIMIT",
		"SELECT a, b FROM t WHERE a IN (?) ORDER BY b limit 5, 10":                                              "LIMIT",
		"SELECT a, b FROM t WHERE a IN (?) LIMIT 1 OFFSET 2":                                                    "LIMIT",
		"SELECT a, b FROM t WHERE a IN (?) OFFSET 2 ROWS FETCH NEXT 1 ROWS ONLY":                                "OFFSET",
		"SELECT a, b FROM t WHERE a IN (?) FETCH FIRST ROW ONLY":                                                "FETCH",
		"SELECT a, b FROM t WHERE a IN (?) AND ROWNUM() < 2":                                                    "ROWNUM",
		"SELECT a, b FROM t WHERE a IN (?) LIMIT ROWS EXAMINED 10":                                              "LIMIT",
		"SELECT a, b FROM t WHERE a IN (?) UNION SELECT c, d FROM u LIMIT 1":                                    "LIMIT",
		"SELECT a, b FROM (SELECT a, b FROM t WHERE a IN (?) ORDER BY b LIMIT 9) x":                             "LIMIT",
		"WITH u AS (SELECT a, b FROM t WHERE a IN (?)) SELECT a, b FROM u LIMIT 1":                              "LIMIT",
		"WITH u AS (SELECT a, b FROM t WHERE a IN (?) LIMIT 1) SELECT a, b FROM u":                              "LIMIT",
		"SELECT a, b FROM t WHERE a IN (1) LIMIT ?":                                                             "LIMIT",
		"SELECT a, MAX(b) FROM t WHERE a IN (?)":                                                                "MAX",
		"SELECT a, COALESCE(max(b), 0) FROM t WHERE a IN (?)":                                                   "MAX",
		"SELECT MIN(a), MAX(b) FROM t WHERE a IN (?)":                                                           "MIN",
		"SELECT a, GROUP_CONCAT(b ORDER BY b LIMIT 1) FROM t WHERE a IN (?)":                                    "GROUP_CONCAT",
		"SELECT a, b FROM t WHERE a IN (?) HAVING COUNT(*) > 1":                                                 "COUNT",
		"SELECT a, b FROM (SELECT a, MAX(b) AS b FROM t WHERE a IN (?)) x GROUP BY a, b":                        "MAX",
		"WITH u AS (SELECT a, b FROM t WHERE a IN (?)) SELECT a, SUM(b) FROM u":                                 "SUM",
		"SELECT a, MAX(b) FROM t WHERE a IN (?) UNION SELECT c, d FROM u GROUP BY c, d":                         "MAX",
		"SELECT a, b FROM t WHERE a IN (?) /*! LIMIT 1 */":                                                      "SELECT",
		"SELECT a, b FROM t WHERE a IN (?) /*M!100100 LIMIT 1 */":                                               "SELECT",
		"SELECT a, t.limit FROM t WHERE a IN (?)":                                                               "",
		"SELECT a, `limit` FROM t WHERE a IN (?)":                                                               "",
		"SELECT a, offset FROM t WHERE a IN (?)":                                                                "",
		"SELECT a, 'LIMIT 1' FROM t WHERE a IN (?) /* LIMIT 1 */ -- LIMIT 1":                                    "",
		"SELECT a, limits FROM t fetch WHERE a IN (?)":                                                          "",
		"SELECT a, MAX(b) FROM t WHERE a IN (?) GROUP BY a":                                                     "",
		"SELECT a, MAX(b) OVER (PARTITION BY a) FROM t WHERE a IN (?)":                                          "",
		"SELECT a, ROW_NUMBER() OVER (PARTITION BY a ORDER BY b) FROM t WHERE a IN (?)":                         "",
		"SELECT a, (SELECT c FROM u WHERE u.a = t.a ORDER BY c LIMIT 1) FROM t WHERE a IN (?)":                  "",
		"SELECT a, (SELECT MAX(c) FROM u WHERE u.a = t.a) FROM t WHERE a IN (?)":                                "",
		"SELECT t.a, x.c FROM t, LATERAL (SELECT c FROM u WHERE u.a = t.a LIMIT 3) x WHERE t.a IN (?)":          "",
		"WITH top AS (SELECT c FROM u ORDER BY c LIMIT 10) SELECT a, b FROM t JOIN top ON b = c WHERE a IN (?)": "",
		"SELECT a, b FROM t WHERE a IN (?) UNION SELECT a, b FROM (SELECT a, MAX(b) b FROM u) x":                "",
		"SELECT a, maximum(b) FROM t WHERE a IN (?) AND t.max > 1 AND s.max(b) > 1":                             "",
		"SELECT a, b FROM t WHERE a IN (?) AND b = (SELECT COUNT(*) FROM u)":                                    "",
	} {
		_, batch := invalidation.SQLFaults(sql, 2, 1)
		got := ""
		if len(batch) > 0 {
			got = strings.Fields(batch[0])[0]
		}
		if got != want || len(batch) > 1 {
			t.Errorf("%s: got %q, wanted %q: %v", sql, got, want, batch)
		}
	}
}

func TestNamesInSQL(t *testing.T) {
	t.Parallel()
	for sql, want := range map[string]string{
		"SELECT a, b FROM t WHERE l = '{locale}' AND a IN (?)":                 "locale",
		"SELECT a, b FROM {db}.`{app}_t` WHERE l = { id } AND m = \"{{ n }}\"": "db app id n",
		"SELECT a, b FROM t WHERE l = 'x{a}y{b}{a}'":                           "a b",
		"SELECT a, '{\"a\": 1}' FROM t -- {id}\n /* {id} */ # {id}":            "",
		"SELECT a, {d '2026-01-01'} FROM t WHERE b REGEXP 'x{2}' AND c = '{}'": "",
		"SELECT a, '{id' FROM t WHERE b = 'id}' AND c = '{1a}'":                "",
		"{ id": "", "{": "", "}": "", "{}": "",
	} {
		if got := strings.Join(invalidation.NamesInSQL(sql), " "); got != want {
			t.Errorf("%s: got %q, wanted %q", sql, got, want)
		}
	}
}

// Any text is read to its end, and what it is found to have is its own.
func FuzzSQL(f *testing.F) {
	for _, sql := range []string{
		"WITH u AS (SELECT a, MAX(b) OVER (x) FROM t WHERE a IN (?) LIMIT 1) SELECT a, `b` FROM u GROUP BY a", "SELECT (((MAX(?", ")))) LIMIT ? OFFSET 1 /*!",
		"SELECT '{a}', {b} FROM t WHERE \"\\", "SELECT MAX(MAX(?)) UNION SELECT ? FETCH FIRST", "FROM (?) WHERE GROUP BY COUNT(",
	} {
		f.Add(sql)
	}
	f.Fuzz(func(t *testing.T, sql string) {
		_, _ = invalidation.SQLFaults(sql, 1, 1)
		for _, fault := range invalidation.BatchFaults(sql) {
			if !strings.Contains(strings.ToUpper(sql), fault) {
				t.Errorf("%q: %v", sql, fault)
			}
		}
		for _, name := range invalidation.NamesInSQL(sql) {
			if !invalidation.IsName(name) || !strings.Contains(sql, name) {
				t.Errorf("%q: %q", sql, name)
			}
		}
	})
}
