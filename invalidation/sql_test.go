package invalidation

import "testing"

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
		if faults := sqlFaults(sql, by, 1); len(faults) > 0 {
			t.Errorf("%s: %v", sql, faults)
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
		if faults := sqlFaults(sql, 1, 1); len(faults) == 0 {
			t.Errorf("%s: accepted", sql)
		}
	}
}
