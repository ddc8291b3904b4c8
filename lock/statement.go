package lock

import (
	"fmt"
	"slices"
	"strings"

	"github.com/unstale/unstale/internal/sqltext"
)

// allowed are the words that a statement of a guarded transaction may begin with. None of them commits. What they begin may
// call something that does (CALL, a stored function): the savepoint tells that at the end.
var allowed = []string{"SELECT", "INSERT", "UPDATE", "DELETE", "REPLACE", "WITH", "VALUES", "TABLE", "DO", "CALL",
	"EXPLAIN", "DESCRIBE", "DESC", "SHOW", "SAVEPOINT", "RELEASE", "("}

// pairs are those that it may begin with if another word follows.
var pairs = map[string][]string{
	"CREATE":   {"TEMPORARY"},
	"DROP":     {"TEMPORARY"},
	"LOAD":     {"DATA", "XML"},
	"ROLLBACK": {"TO", "WORK TO"}, // a savepoint, which cannot be from before Guard
}

// checkStatement refuses what ends a transaction, or may hide that it does.
func checkStatement(query string) error {
	tokens := sqltext.Tokens(strings.TrimRight(query, "; \t\r\n"))
	if len(tokens) == 0 {
		return refuse("an empty statement")
	}
	if strings.Contains(query, "/*!") || strings.Contains(query, "/*M!") {
		return refuse("a comment that is executed")
	}
	if slices.Contains(tokens, ";") {
		return refuse("several statements in one text")
	}
	word := strings.ToUpper(tokens[0])
	rest := strings.ToUpper(strings.Join(tokens[1:min(3, len(tokens))], " ")) + " "
	follows := func(second string) bool { return strings.HasPrefix(rest, second+" ") }
	switch {
	case slices.Contains(allowed, word), slices.ContainsFunc(pairs[word], follows):
		return nil
	case word == "SET" && !mentionsAny(tokens, "AUTOCOMMIT", "PASSWORD", "STATEMENT"):
		return nil
	}
	return refuse("a statement that begins with " + word)
}

// mentionsAny reports whether a word occurs, whatever its case, its quotes and the scope before it.
func mentionsAny(tokens []string, words ...string) bool {
	return slices.ContainsFunc(tokens, func(token string) bool {
		return slices.Contains(words, strings.ToUpper(strings.Trim(token, "@`")))
	})
}

func refuse(what string) error {
	return fmt.Errorf("%s is refused in a guarded transaction, which must not commit before its end: run it elsewhere", what)
}
