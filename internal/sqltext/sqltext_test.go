package sqltext

import (
	"slices"
	"strings"
	"testing"
)

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
