package invalidation

import (
	"slices"
	"strconv"
	"strings"
)

// longestProof bounds the tokens of a statement, since each SELECT in it is read to its end.
const longestProof = 1000

// togetherFault returns why a lookup cannot be proven to find the same rows for several IDs together
// as for one at a time, or "". It follows each SELECT whose rows the ? decides: GROUP BY and each
// window's PARTITION BY must name the columns that hold the ID, without a function around them.
// These are the first by columns of the outermost SELECT, and the columns that are compared with
// the ? of another one.
//
// A table expression with the ? may be read once outside its definition: read twice, the rows of one
// ID can be compared with those of others.
func togetherFault(tokens []string, by int) string {
	if len(tokens) > longestProof {
		return "the statement is too long for a proof"
	}
	for i := range tokens {
		if name := expressionReadTwice(tokens, i); name != "" {
			return name + " is read more than once"
		}
		if !strings.EqualFold(tokens[i], "SELECT") || i > 0 && tokens[i-1] == "." {
			continue
		}
		s := readSelect(tokens, i)
		if !s.asked || !s.grouped && s.windows == nil {
			continue
		}
		ids := s.compared
		if s.outermost {
			ids = s.list[:min(by, len(s.list))]
		}
		if len(ids) == 0 {
			return "the columns with the ID are not known in a subquery that has GROUP BY or a window"
		}
		if s.grouped {
			if column := missing(ids, s.groups, s.list); column != "" {
				return "GROUP BY does not name " + column + " as it is"
			}
		}
		for _, window := range s.windows {
			if column := missing(ids, window, nil); column != "" {
				return "a window has no PARTITION BY that names " + column + " as it is"
			}
		}
	}
	return ""
}

// expressionReadTwice returns the name of the table expression at a token if it contains the ? and
// is read more than once, or "".
func expressionReadTwice(tokens []string, at int) string {
	if tokens[at] == ")" { // its AS follows a list of columns, after the name
		return ""
	}
	as := at + 1
	if as < len(tokens) && tokens[as] == "(" { // a list of columns
		_, as = items(tokens, as+1)
		as++
	}
	if at == 0 || as+1 >= len(tokens) || !strings.EqualFold(tokens[as], "AS") || tokens[as+1] != "(" {
		return ""
	}
	_, end := items(tokens, as+2)
	if !slices.Contains(tokens[as:min(end, len(tokens))], "?") {
		return ""
	}
	reads := 0
	for i := end; i < len(tokens); i++ {
		if plainName(tokens[i]) == plainName(tokens[at]) && tokens[i-1] != "." && (i+1 == len(tokens) || tokens[i+1] != ".") {
			reads++
		}
	}
	if reads < 2 {
		return ""
	}
	return tokens[at]
}

// A selectPart is what decides how the rows of one SELECT belong together. An item is a list of
// tokens.
type selectPart struct {
	outermost bool // or a part of an outermost UNION
	asked     bool // the ? is inside, or in the WITH before it
	grouped   bool
	list      [][]string   // the select list
	groups    [][]string   // of GROUP BY
	windows   [][][]string // the PARTITION BY of each window
	compared  [][]string   // the columns before IN (?)
}

// readSelect reads the SELECT at a token.
func readSelect(tokens []string, at int) selectPart {
	s := selectPart{outermost: depthAt(tokens, at) == 0}
	s.asked = s.outermost && slices.Contains(tokens[:at], "?")
	s.list, _ = items(tokens, at+1, "FROM")
	for i, depth := at+1, 0; i < len(tokens) && depth >= 0; i++ {
		switch word := strings.ToUpper(tokens[i]); {
		case word == "(":
			depth++
		case word == ")":
			depth--
		case word == "?":
			s.asked = true
			if i >= 3 && depth == 1 && tokens[i-1] == "(" && strings.EqualFold(tokens[i-2], "IN") {
				s.compared = before(tokens, i-2)
			}
		case tokens[i-1] == ".":
		case depth == 0 && (word == "UNION" || word == "EXCEPT" || word == "INTERSECT"):
			return s
		case depth == 0 && word == "GROUP" && i+1 < len(tokens) && strings.EqualFold(tokens[i+1], "BY"):
			s.groups, _ = items(tokens, i+2, "HAVING", "ORDER", "LIMIT", "WINDOW", "WITH", "FOR", "UNION", "EXCEPT", "INTERSECT")
			s.grouped = true
		case word == "ROLLUP": // its rows are sums of several groups
			s.grouped, s.groups = true, nil
		case word == "OVER" && i+1 < len(tokens), depth == 0 && word == "AS" && i+1 < len(tokens) && tokens[i+1] == "(" && slices.ContainsFunc(tokens[at:i], isWindow):
			s.windows = append(s.windows, partition(tokens, i+1))
		}
	}
	return s
}

func isWindow(token string) bool { return strings.EqualFold(token, "WINDOW") }

// partition returns the items of PARTITION BY in the window whose parenthesis is at a token. The
// name of a window stands for its definition, which has a partition of its own.
func partition(tokens []string, at int) [][]string {
	if tokens[at] != "(" {
		return [][]string{{"*"}}
	}
	if at+2 < len(tokens) && strings.EqualFold(tokens[at+1], "PARTITION") {
		list, _ := items(tokens, at+3, "ORDER", "ROWS", "RANGE", "GROUPS")
		return list
	}
	return nil
}

func depthAt(tokens []string, at int) (depth int) {
	for _, token := range tokens[:at] {
		switch token {
		case "(":
			depth++
		case ")":
			depth--
		}
	}
	return depth
}

// items splits tokens at commas, up to one of the words or the end of the parentheses around them.
func items(tokens []string, at int, until ...string) (list [][]string, end int) {
	item, depth := []string{}, 0
	for end = at; end < len(tokens) && depth >= 0; end++ {
		word := strings.ToUpper(tokens[end])
		switch {
		case word == "(":
			depth++
		case word == ")":
			depth--
		}
		if depth < 0 || depth == 0 && slices.Contains(until, word) && (end == 0 || tokens[end-1] != ".") {
			break
		}
		switch {
		case depth == 0 && word == ",":
			list, item = append(list, item), []string{}
		case end == at && (word == "DISTINCT" || word == "ALL"):
		default:
			item = append(item, tokens[end])
		}
	}
	return append(list, item), end
}

// before returns the column, or the columns in parentheses, that end before a token.
func before(tokens []string, at int) (list [][]string) {
	if tokens[at-1] != ")" {
		first := at - 1
		for first >= 2 && tokens[first-1] == "." {
			first -= 2
		}
		return [][]string{tokens[first:at]}
	}
	for i, depth := at-1, 0; i >= 0; i-- {
		switch tokens[i] {
		case ")":
			depth++
		case "(":
			if depth--; depth == 0 {
				list, _ = items(tokens, i+1)
				return list
			}
		}
	}
	return nil
}

// missing returns the first of some columns that a list does not name as it is, or "". The list may
// name it by its alias or its position in a select list.
func missing(ids, list, selected [][]string) string {
	for _, id := range ids {
		column, alias := bare(id)
		position := strconv.Itoa(1 + slices.IndexFunc(selected, func(item []string) bool { return slices.Equal(item, id) }))
		names := func(item []string) bool {
			if len(item) == 1 && (item[0] == "*" || alias != "" && strings.EqualFold(item[0], alias) || position != "0" && item[0] == position) {
				return true
			}
			other, _ := bare(item)
			return other != "" && sameColumn(column, other)
		}
		if column == "" || !slices.ContainsFunc(list, names) {
			return strings.Join(id, "")
		}
	}
	return ""
}

// bare returns the column of an item, with its qualifiers, and its alias. It returns "" for an item
// that is more than a column.
func bare(item []string) (column, alias string) {
	n := 1
	for n+1 < len(item) && item[n] == "." {
		n += 2
	}
	if len(item) == 0 || n > len(item) || item[0] == "(" {
		return "", ""
	}
	switch rest := item[n:]; {
	case len(rest) == 1:
		alias = plainName(rest[0])
	case len(rest) == 2 && strings.EqualFold(rest[0], "AS"):
		alias = plainName(rest[1])
	case len(rest) > 0:
		return "", ""
	}
	for i := range n {
		column += plainName(item[i])
	}
	return column, alias
}

func plainName(token string) string { return strings.ToLower(strings.Trim(token, "`")) }

// sameColumn compares as many qualifiers as both columns have.
func sameColumn(a, b string) bool {
	return a == b || strings.HasSuffix(a, "."+b) || strings.HasSuffix(b, "."+a)
}
