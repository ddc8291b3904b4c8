package lock

import (
	"fmt"
	"slices"
	"strings"

	"github.com/unstale/unstale/internal/sqltext"
)

// allowed are the first words of statements that a guarded transaction accepts. None of them
// commits. Such a statement may call code that commits (CALL, a stored function): the savepoint
// reveals that at the end.
var allowed = []string{"SELECT", "INSERT", "UPDATE", "DELETE", "REPLACE", "WITH", "VALUES", "TABLE", "DO", "CALL",
	"EXPLAIN", "DESCRIBE", "DESC", "SHOW", "SAVEPOINT", "RELEASE", "("}

// pairs are those that it may begin with if another word follows.
var pairs = map[string][]string{
	"CREATE":   {"TEMPORARY"},
	"DROP":     {"TEMPORARY"},
	"LOAD":     {"DATA", "XML"},
	"ROLLBACK": {"TO", "WORK TO"}, // a savepoint, which cannot be from before Guard
}

// lasting are the words that begin statements whose effect on the MySQL session outlives a
// transaction.
var lasting = []string{"SET", "CALL", "DO", "CREATE", "DROP"}

// checkStatement refuses what ends a transaction, or may hide that it does, in a MySQL session with
// an sql_mode. It reports whether the statement may change the session.
func checkStatement(query, mode string) (lasts bool, err error) {
	tokens := sqltext.TokensIn(strings.TrimRight(query, "; \t\r\n"), mode)
	if strings.Contains(query, "/*!") || strings.Contains(query, "/*M!") {
		return false, refuse("a comment that MySQL executes, /*! ... */,")
	}
	if len(tokens) == 0 {
		return false, refuse("an empty statement")
	}
	if slices.Contains(tokens, ";") {
		return false, refuse("several statements in one text")
	}
	word := strings.ToUpper(tokens[0])
	rest := strings.ToUpper(strings.Join(tokens[1:min(3, len(tokens))], " ")) + " "
	follows := func(second string) bool { return strings.HasPrefix(rest, second+" ") }
	switch {
	case slices.Contains(allowed, word), slices.ContainsFunc(pairs[word], follows):
	case word == "SET" && !follows("DEFAULT") && !slices.ContainsFunc(tokens, unsettable):
	default:
		return false, refuse("a statement that begins with " + word)
	}
	return slices.Contains(lasting, word) || slices.ContainsFunc(tokens, marks), nil
}

// unsettable reports whether SET with a word can commit, or change how the next statement is
// parsed. It ignores case, quotes and the scope before the word. MySQL ignores accents in names of
// variables.
func unsettable(token string) bool {
	if token[0] == '\'' {
		return false
	}
	name := strings.ToUpper(strings.Trim(token, "@`\""))
	return slices.Contains([]string{"AUTOCOMMIT", "PASSWORD", "STATEMENT", "SQL_MODE"}, name) ||
		strings.ContainsFunc(token, func(r rune) bool { return r >= 0x80 })
}

// marks reports whether a word is of a user variable or of a lock by name, which any statement may
// set.
func marks(token string) bool {
	return token[0] == '@' && !strings.HasPrefix(token, "@@") || strings.EqualFold(strings.Trim(token, "`\""), "GET_LOCK")
}

func refuse(what string) error {
	return fmt.Errorf("%s is refused in a guarded transaction, which must not commit before its end: run it elsewhere", what)
}
