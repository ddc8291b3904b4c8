// Package sqltext takes a piece of SQL apart, no further than is needed to find words in it.
package sqltext

import (
	"slices"
	"strings"
)

// A Token is a word, a number, a quoted text or one character of punctuation.
type Token struct {
	Text string
	At   int // where it begins in the statement, in bytes
}

// Tokens splits a statement into words, numbers and punctuation. Quoted text becomes one token that
// starts with its quote; comments disappear.
func Tokens(sql string) []string { return TokensIn(sql, "") }

// TokensIn is Tokens for a MySQL session with an sql_mode. NO_BACKSLASH_ESCAPES and ANSI_QUOTES
// decide where quoted text ends.
func TokensIn(sql, mode string) []string {
	escapes := `'"`
	switch {
	case strings.Contains(mode, "NO_BACKSLASH_ESCAPES"):
		escapes = ""
	case strings.Contains(mode, "ANSI_QUOTES"):
		escapes = "'"
	}
	placed := split(sql, escapes)
	all := make([]string, len(placed))
	for i, token := range placed {
		all[i] = token.Text
	}
	return all
}

// Placed returns the tokens of a statement with their places.
func Placed(sql string) []Token { return split(sql, `'"`) }

// Element returns the first and the last token of what a list of values takes the place of in a
// lookup, once for each value: the ?, or the calls of functions around it if they are all that IN has,
// such as UNHEX(?) in IN (UNHEX(?)). It returns -1 if there is no ?.
func Element(tokens []string) (first, last int) {
	mark := slices.Index(tokens, "?")
	for first, last = mark, mark; first > 0; {
		opening, closing := first-1, last+1
		for depth := 0; opening > 0 && (tokens[opening] != "(" || depth > 0); opening-- {
			depth += nesting(tokens[opening])
		}
		for depth := 0; closing < len(tokens) && (tokens[closing] != ")" || depth < 0); closing++ {
			depth += nesting(tokens[closing])
		}
		switch name := opening - 1; {
		case name < 0 || closing == len(tokens) || !isWordByte(tokens[name][0]):
			return mark, mark
		case !strings.EqualFold(tokens[name], "IN"):
			first, last = name, closing
		case opening == first-1 && closing == last+1:
			return first, last
		default:
			return mark, mark
		}
	}
	return mark, mark
}

// nesting returns 1 for a closing parenthesis, -1 for an opening one, and else 0.
func nesting(token string) int {
	switch token {
	case ")":
		return 1
	case "(":
		return -1
	}
	return 0
}

// split is Placed, where a backslash escapes the next character only within these quotes.
func split(sql, escapes string) []Token {
	var all []Token
	for i := 0; i < len(sql); {
		c := sql[i]
		n := 1
		switch {
		case strings.IndexByte(" \t\r\n\f\v", c) >= 0:
			i++
			continue
		case c == '#' || strings.HasPrefix(sql[i:], "--") && (i+2 == len(sql) || isBlank(sql[i+2])):
			i += lengthUntil(sql[i:], "\n")
			continue
		case strings.HasPrefix(sql[i:], "/*"):
			i += 2 + lengthUntil(sql[i+2:], "*/")
			continue
		case c == '\'' || c == '"' || c == '`':
			n = quotedLength(sql[i:], escapes)
		case c == '@' || isWordByte(c): // @ and @@ begin a variable
			if strings.HasPrefix(sql[i:], "@@") {
				n = 2
			}
			for i+n < len(sql) && isWordByte(sql[i+n]) {
				n++
			}
		}
		all = append(all, Token{sql[i : i+n], i})
		i += n
	}
	return all
}

func isWordByte(c byte) bool {
	return c == '_' || c == '$' || c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'z' || c >= 0x80
}

// lengthUntil returns the length of text up to and with end.
func lengthUntil(text, end string) int {
	if i := strings.Index(text, end); i >= 0 {
		return i + len(end)
	}
	return len(text)
}

func quotedLength(text, escapes string) int {
	quote := text[0]
	for i := 1; i < len(text); i++ {
		switch {
		case text[i] == '\\' && strings.IndexByte(escapes, quote) >= 0:
			i++
		case text[i] != quote:
		case i+1 < len(text) && text[i+1] == quote:
			i++
		default:
			return i + 1
		}
	}
	return len(text)
}

func isBlank(c byte) bool { return c == 0 || c == ' ' || c == '\t' || c == '\r' || c == '\n' }
