package invalidation

import "strings"

// sqlTokens splits a statement into words, numbers and punctuation. Quoted text becomes one token that starts with its
// quote; comments disappear.
func sqlTokens(sql string) []string {
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

const cureSQL = `write one SELECT such as "SELECT product_id, category_id FROM product_categories WHERE product_id IN (?)"`

// sqlFaults returns what is wrong with the statement of a lookup that is asked by so many names.
func sqlFaults(sql string, by int) (all []templateError) {
	fail := func(problem, cure string) { all = append(all, templateError{sql, problem, cure}) }
	tokens := sqlTokens(sql)
	if len(tokens) == 0 || !strings.EqualFold(tokens[0], "SELECT") {
		fail("a lookup must be a SELECT", cureSQL)
		return all
	}
	marks := 0
	for i, token := range tokens {
		next := ""
		if i+1 < len(tokens) {
			next = strings.ToUpper(tokens[i+1])
		}
		switch word := strings.ToUpper(token); {
		case word == "?":
			marks++
		case word == ";":
			fail("a lookup must be one statement without a semicolon", "remove the semicolon and what follows it")
		case word == "INTO":
			fail("a lookup must not write", "remove INTO and what belongs to it")
		case word == "LOCK" && next == "IN" || word == "FOR" && (next == "UPDATE" || next == "SHARE"):
			fail("a lookup must not lock", "remove "+word+" "+next+" and what belongs to it")
		}
	}
	// A question mark in quotes or in a comment is not a placeholder, and yet what runs the lookup might take it for
	// one.
	if marks != 1 || strings.Count(sql, "?") != 1 {
		fail("a lookup needs exactly one ?, which stands for the list of values asked by", cureSQL)
	}
	switch columns := selectedColumns(tokens[1:]); {
	case columns == 0:
		fail("a lookup must name its columns", "instead of * write the columns of by, in its order, and then the value")
	case by > 0 && columns != by+1:
		fail("a lookup must select the columns of by, in its order, and then the value", cureSQL)
	}
	return all
}

// selectedColumns counts the columns of a select list, or returns 0 if it has a *.
func selectedColumns(tokens []string) int {
	columns, depth, before := 1, 0, ","
	for _, token := range tokens {
		switch word := strings.ToUpper(token); {
		case word == "(":
			depth++
		case word == ")":
			depth--
		case depth > 0:
		case word == "FROM":
			return columns
		case word == ",":
			columns++
		case word == "DISTINCT" || word == "ALL":
			continue // the list begins behind it
		case word == "*" && (before == "," || before == "."):
			return 0
		}
		before = token
	}
	return columns
}

func isBlank(c byte) bool { return c == 0 || c == ' ' || c == '\t' || c == '\r' || c == '\n' }
