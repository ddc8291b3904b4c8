package invalidation

import (
	"regexp"
	"strings"

	"github.com/unstale/unstale/internal/sqltext"
)

const cureSQL = `write one SELECT such as "SELECT product_id, category_id FROM product_categories WHERE product_id IN (?)"`

const cureSQLWith = `write one SELECT such as "SELECT shop_id, country, currency FROM shop_countries WHERE shop_id IN (?)"`

// sqlFaults returns the faults of a lookup's statement, which is asked by so many names and finds
// so many values. The list batch has the faults that make the rows of one ID depend on the other
// IDs.
func sqlFaults(sql string, by, values int) (all, batch []templateError) {
	fail := func(problem, cure string) { all = append(all, templateError{sql, problem, cure}) }
	tokens := sqltext.Tokens(sql)
	list := selectList(tokens)
	if list == nil {
		fail("a lookup must be a SELECT", cureSQL)
		return all, nil
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
		case word[0] == '@' && !strings.HasPrefix(word, "@@") && (i == 0 || !strings.EqualFold(tokens[i-1], "INTO")):
			fail("a lookup must not use the user variable "+token+", which keeps its value from one ID to the next", "use ROW_NUMBER() or another window with PARTITION BY")
		case word == "INTO":
			fail("a lookup must not write", "remove INTO and what belongs to it")
		case word == "LOCK" && next == "IN" || word == "FOR" && (next == "UPDATE" || next == "SHARE"):
			fail("a lookup must not lock", "remove "+word+" "+next+" and what belongs to it")
		}
	}
	// A question mark in quotes or in a comment is not a placeholder, and yet what runs the lookup
	// might take it for one.
	if marks != 1 || strings.Count(sql, "?") != 1 {
		fail("a lookup needs exactly one ?, which stands for the list of values asked by", cureSQL)
	} else {
		batch = batchFaults(tokens)
	}
	if strings.Contains(sql, "/*!") || strings.Contains(sql, "/*M!") {
		batch = append(batch, templateError{sql, "some servers execute this comment and others do not", "write what the server of this map is to do"})
	}
	switch columns := selectedColumns(list); {
	case columns == 0:
		fail("a lookup must name its columns", "instead of * write the columns of by, in its order, and then the value")
	case by > 0 && columns != by+values && values > 1:
		fail("a lookup must select the columns of by, in its order, then the value, and then those of with, in its order", cureSQLWith)
	case by > 0 && columns != by+values:
		fail("a lookup must select the columns of by, in its order, and then the value", cureSQL)
	}
	return all, batch
}

// selectList returns the text after the SELECT of a statement, which may follow a WITH, or nil if
// it has none.
func selectList(tokens []string) []string {
	depth := 0
	for i, token := range tokens {
		switch word := strings.ToUpper(token); {
		case word == "SELECT" && depth == 0:
			return tokens[i+1:]
		case i == 0 && word != "WITH", word == "UPDATE" && depth == 0, word == "DELETE" && depth == 0:
			return nil
		case word == "(":
			depth++
		case word == ")":
			depth--
		}
	}
	return nil
}

// selectedColumns counts the columns of a select list, or returns 0 if it has a *.
func selectedColumns(tokens []string) int {
	list, _ := items(tokens, 0, "FROM")
	for _, item := range list {
		if n := len(item); n > 0 && item[n-1] == "*" && (n == 1 || item[n-2] == ".") {
			return 0
		}
	}
	return len(list)
}

// namesInSQL returns the names in single braces of a statement, each once: in quotes or not, but
// not in comments.
func namesInSQL(sql string) (names []string) {
	seen := map[string]bool{}
	add := func(name string) {
		if isName(name) && !seen[name] {
			seen[name], names = true, append(names, name)
		}
	}
	tokens := sqltext.Tokens(sql)
	for i, token := range tokens {
		switch token[0] {
		case '\'', '"', '`':
			for _, match := range bracedName.FindAllStringSubmatch(token, -1) {
				add(match[1])
			}
		case '{':
			if i+2 < len(tokens) && tokens[i+2] == "}" {
				add(tokens[i+1])
			}
		}
	}
	return names
}

var bracedName = regexp.MustCompile(`\{\s*(\w+)\s*\}`)
