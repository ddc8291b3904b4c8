// Package sqltext takes a piece of SQL apart, no further than is needed to find words in it.
package sqltext

import "strings"

// Tokens splits a statement into words, numbers and punctuation. Quoted text becomes one token that starts with its
// quote; comments disappear.
func Tokens(sql string) []string {
	var all []string
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
			n = quotedLength(sql[i:])
		case isWordByte(c):
			for i+n < len(sql) && isWordByte(sql[i+n]) {
				n++
			}
		}
		all = append(all, sql[i:i+n])
		i += n
	}
	return all
}

func isWordByte(c byte) bool {
	return c == '_' || c == '$' || c == '@' || c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'z' || c >= 0x80
}

// lengthUntil returns the length of text up to and with end.
func lengthUntil(text, end string) int {
	if i := strings.Index(text, end); i >= 0 {
		return i + len(end)
	}
	return len(text)
}

func quotedLength(text string) int {
	quote := text[0]
	for i := 1; i < len(text); i++ {
		switch {
		case text[i] == '\\' && quote != '`':
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
