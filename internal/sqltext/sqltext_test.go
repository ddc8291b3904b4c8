package sqltext

import (
	"slices"
	"strings"
	"testing"
)

// A list of values takes the place of the ?, or of functions around it that are all that IN has.
func TestElement(t *testing.T) {
	for sql, want := range map[string]string{
		"SELECT a, b FROM t WHERE a IN (?)":                                                   "?",
		"SELECT a, b FROM t WHERE a IN (UNHEX(?)) AND c IN (UNHEX(1))":                        "UNHEX(?)",
		"WHERE f(a) in ( unhex ( replace(lower(?), '-', '(') ) ) AND b":                       "unhex(replace(lower(?),'-','('))",
		"WHERE a IN (SELECT id FROM JSON_TABLE(JSON_ARRAY(?), '$[*]' COLUMNS (id INT)) AS j)": "?",
		"WHERE a IN (UNHEX(?), UNHEX(1))":                                                     "?",
		"WHERE a IN (UNHEX(?) + 1)":                                                           "?",
		"WHERE a IN (1 + UNHEX(?))":                                                           "?",
		"WHERE a IN ((?))":                                                                    "?",
		"WHERE a IN (F((SELECT ?)))":                                                          "?",
		"WHERE a IN (SELECT b FROM t WHERE c IN (F(?)))":                                      "F(?)",
		"WHERE a = UNHEX(?)":                                                                  "?",
		"(?)":                                                                                 "?",
		"F(?":                                                                                 "?",
		") IN (F(?)":                                                                          "?",
		"SELECT 1":                                                                            "",
	} {
		tokens := Tokens(sql)
		got := ""
		if first, last := Element(tokens); first >= 0 {
			got = strings.Join(tokens[first:last+1], "")
		}
		if got != want {
			t.Errorf("%s: %s, wanted %s", sql, got, want)
		}
	}
}

// A variable begins with its @, whatever stands before it: MySQL lets no word go on with one.
func TestVariables(t *testing.T) {
	for sql, want := range map[string]string{
		"SELECT 1 INTO@mark":          "SELECT 1 INTO @mark",
		"SELECT 1 INTO@`mark`":        "SELECT 1 INTO @ `mark`",
		"SET@@autocommit=1":           "SET @@autocommit = 1",
		"SET @@session.autocommit=@a": "SET @@session . autocommit = @a",
		"SELECT @a@b, @@c@@d":         "SELECT @a @b , @@c @@d",
		"SELECT @":                    "SELECT @",
		"GRANT x TO u@localhost":      "GRANT x TO u @localhost",
	} {
		if got := strings.Join(Tokens(sql), " "); got != want {
			t.Errorf("%s: %s, wanted %s", sql, got, want)
		}
	}
	const sql = "DO@a+@@b"
	for _, token := range Placed(sql) {
		if !strings.HasPrefix(sql[token.At:], token.Text) {
			t.Errorf("%q is not at %d", token.Text, token.At)
		}
	}
	if got := TokensIn(`SET @a = '\', @b = ''`, "NO_BACKSLASH_ESCAPES"); !slices.Contains(got, "@b") {
		t.Errorf("a backslash hides what follows: %q", got)
	}
}
