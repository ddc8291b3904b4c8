// Package sqltext takes a piece of SQL apart, no further than is needed to find words in it.
package sqltext

import "strings"

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
