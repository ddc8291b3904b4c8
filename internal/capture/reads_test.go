package capture

import (
	"slices"
	"testing"
)

// All tables and functions in the text of an expression are found.
func TestReadingOf(t *testing.T) {
	t.Parallel()
	for expression, want := range map[string][]string{
		"CONCAT(`a`.`b`, 'FROM x', \"FROM y\", a.b) /* FROM z */": {"CONCAT()"},
		"(SELECT b FROM t WHERE c IN (SELECT d FROM `o``t`))":     {"t", "o`t", "IN()"},
		"(SELECT b FROM s.t AS x, `u` y JOIN v USING (a, b) LEFT JOIN (w, z) ON f(x.a, 1) = 1 WHERE a.b > LEFT(c, d))": {
			"s.t", "u", "v", "w", "z", "USING()", "f()", "LEFT()"},
		"(SELECT b FROM (SELECT c FROM t) AS x, LATERAL (SELECT c FROM u) AS y)":                      {"t", "u"},
		"(SELECT EXTRACT(YEAR FROM d) + s.g(d) FROM t UNION SELECT TRIM(LEADING x FROM y) FROM dual)": {"t", "EXTRACT()", "s.g()", "TRIM()"},
		"(WITH RECURSIVE w (a, b) AS (SELECT c, d FROM t), v AS (SELECT 1) SELECT a FROM w, v, u)":    {"t", "u", "w()", "AS()", "AS()"},
		"(SELECT b FROM JSON_TABLE(j, '$[*]' COLUMNS (n INT PATH '$.n', m INT PATH '$.m')) AS j, t)":  {"t", "JSON_TABLE()", "COLUMNS()"},
	} {
		var got []string
		r := readingOf(expression)
		for _, o := range r.tables {
			got = append(got, o.name)
			if o.database != "" {
				got[len(got)-1] = o.database + "." + o.name
			}
		}
		for _, o := range r.calls {
			name := o.name + "()"
			if o.database != "" {
				name = o.database + "." + name
			}
			got = append(got, name)
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, wanted %q", expression, got, want)
		}
	}
}

// Lines of SHOW GRANTS of both servers.
func TestParseGrant(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]struct {
		holder, right string
		columns       []string
		on            grant
	}{
		"GRANT SELECT, INSERT (`a`, `b,)`), TRIGGER ON `sh``op`.`t` TO `u`@`%` WITH GRANT OPTION": {"`u`@`%`", "INSERT", []string{"a", "b,)"}, grant{database: "sh`op", name: "t"}},
		"GRANT ALL PRIVILEGES ON *.* TO 'u'@'localhost' IDENTIFIED BY PASSWORD '*1'":              {"'u'@'localhost'", "ALL PRIVILEGES", nil, grant{database: "*", name: "*"}},
		"GRANT INSERT ON shop.* TO PUBLIC":                                                        {"PUBLIC", "INSERT", nil, grant{database: "shop", name: "*"}},
		"REVOKE INSERT ON `shop`.* FROM `u`@`%`":                                                  {"`u`@`%`", "INSERT", nil, grant{revoked: true, database: "shop", name: "*"}},
		"GRANT EXECUTE ON FUNCTION `shop`.`f` TO `u`@`%`":                                         {"`u`@`%`", "EXECUTE", nil, grant{kind: "FUNCTION", database: "shop", name: "f"}},
	} {
		holder, g, ok := parseGrant(line)
		columns, has := g.rights[want.right]
		if !ok || holder != want.holder || !has || !slices.Equal(columns, want.columns) ||
			g.revoked != want.on.revoked || g.kind != want.on.kind || g.database != want.on.database || g.name != want.on.name {
			t.Errorf("%s: %q, %+v, %v", line, holder, g, ok)
		}
	}
	for _, line := range []string{"GRANT `r`@`%` TO `u`@`%`", "GRANT PROXY ON ``@`` TO `root`@`localhost`", "SET DEFAULT ROLE `r` FOR `u`@`%`"} {
		if holder, g, ok := parseGrant(line); ok {
			t.Errorf("%s: %q, %+v", line, holder, g)
		}
	}
}
