package invalidation

import (
	"strings"

	"github.com/unstale/unstale/internal/sqltext"
)

const cureSQL = `write one SELECT such as "SELECT product_id, category_id FROM product_categories WHERE product_id IN (?)"`

const cureSQLWith = `write one SELECT such as "SELECT shop_id, country, currency FROM shop_countries WHERE shop_id IN (?)"`

// sqlFaults returns what is wrong with the statement of a lookup that is asked by so many names and finds values of so many.
func sqlFaults(sql string, by, values int) (all []templateError) {
	fail := func(problem, cure string) { all = append(all, templateError{sql, problem, cure}) }
	tokens := sqltext.Tokens(sql)
	list := selectList(tokens)
	if list == nil {
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
	switch columns := selectedColumns(list); {
	case columns == 0:
		fail("a lookup must name its columns", "instead of * write the columns of by, in its order, and then the value")
	case by > 0 && columns != by+values && values > 1:
		fail("a lookup must select the columns of by, in its order, then the value, and then those of with, in its order", cureSQLWith)
	case by > 0 && columns != by+values:
		fail("a lookup must select the columns of by, in its order, and then the value", cureSQL)
	}
	return all
}

// selectList returns what follows the SELECT that a statement is, be it behind a WITH, or nil if it is none.
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
