package invalidation

import (
	"regexp"
	"slices"
	"strconv"
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
		switch word, next := wordAt(tokens, i), wordAt(tokens, i+1); {
		case word == "?":
			marks++
		case word == ";":
			fail("a lookup must be one statement without a semicolon", "remove the semicolon and what follows it")
		case word[0] == '@' && !strings.HasPrefix(word, "@@") && wordAt(tokens, i-1) != "INTO":
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
			if wordAt(tokens, i+2) == "}" {
				add(tokens[i+1])
			}
		}
	}
	return names
}

var bracedName = regexp.MustCompile(`\{\s*(\w+)\s*\}`)

const (
	cureLimit = "remove it; for one value per ID use MIN or MAX with GROUP BY, or ROW_NUMBER() OVER (PARTITION BY product_id ORDER BY category_id)"
	cureGroup = `group by the columns of by: "SELECT product_id, MAX(category_id) FROM product_categories WHERE product_id IN (?) GROUP BY product_id"`
	cureList  = `select one row for each value: "SELECT product_id, category_id FROM product_categories WHERE product_id IN (?)"`
)

// aggregates are the functions that make one row of many in a SELECT without GROUP BY.
var aggregates = []string{
	"AVG", "BIT_AND", "BIT_OR", "BIT_XOR", "COUNT", "GROUP_CONCAT", "JSON_ARRAYAGG", "JSON_OBJECTAGG", "MAX", "MIN",
	"STD", "STDDEV", "STDDEV_POP", "STDDEV_SAMP", "ST_COLLECT", "SUM", "VARIANCE", "VAR_POP", "VAR_SAMP",
}

// lists are the aggregates that write several values as one text.
var lists = []string{"GROUP_CONCAT", "JSON_ARRAYAGG", "JSON_OBJECTAGG"}

// A sqlScope is the text between two parentheses, or the whole statement.
type sqlScope struct {
	aggregate string    // the function whose arguments these are
	block     *sqlBlock // the SELECT that is here or, if none is, around it
	own       bool      // the SELECT is here
	asked     bool      // the ? is inside
	limit     string    // the word that limits the rows
}

// A sqlBlock is one SELECT; the parts of a UNION are one each.
type sqlBlock struct {
	asked     bool // the ? decides which rows it reads
	grouped   bool
	aggregate string
}

// A batchReader finds what makes the rows of one ID depend on the other IDs of the same question.
type batchReader struct {
	tokens []string
	scopes []sqlScope
	blocks []*sqlBlock
	found  []templateError
}

// batchFaults returns what is wrong with a lookup that is asked for several IDs together. The
// tokens have one ?.
func batchFaults(tokens []string) []templateError {
	r := &batchReader{tokens: tokens, scopes: []sqlScope{{}}}
	for i := range tokens {
		r.readWord(i)
	}
	for len(r.scopes) > 0 {
		r.leave("")
	}
	for _, b := range r.blocks {
		if !b.asked || b.grouped || b.aggregate == "" {
			continue
		}
		cure := cureGroup
		if slices.Contains(lists, b.aggregate) {
			cure = cureList
		}
		r.addFault(b.aggregate, b.aggregate+" without GROUP BY makes one row of all of them", cure)
	}
	return r.found
}

func (r *batchReader) addFault(text, problem, cure string) {
	fault := templateError{text, "a lookup is asked for several IDs together, and " + problem, cure}
	if !slices.Contains(r.found, fault) {
		r.found = append(r.found, fault)
	}
}

// wordAt returns a token in upper case, or "" where there is none.
func wordAt(tokens []string, i int) string {
	if i < 0 || i >= len(tokens) {
		return ""
	}
	return strings.ToUpper(tokens[i])
}

func (r *batchReader) readWord(i int) {
	top := &r.scopes[len(r.scopes)-1]
	switch word, next := wordAt(r.tokens, i), wordAt(r.tokens, i+1); {
	case word == "(":
		inner := sqlScope{block: top.block}
		if name := wordAt(r.tokens, i-1); top.block != nil && slices.Contains(aggregates, name) && wordAt(r.tokens, i-2) != "." {
			inner.aggregate = name
		}
		r.scopes = append(r.scopes, inner)
	case word == ")" && len(r.scopes) > 1:
		r.leave(next)
	case word == "?":
		for n := range r.scopes {
			s := &r.scopes[n]
			if s.asked = true; s.own {
				s.block.asked = true
			}
		}
	case wordAt(r.tokens, i-1) == ".": // a column may have any name
	case word == "SELECT":
		// If the ? is in the WITH before a SELECT, it decides which rows that reads.
		top.block, top.own = &sqlBlock{asked: top.asked && !top.own}, true
		r.blocks = append(r.blocks, top.block)
	case word == "GROUP" && next == "BY" && top.own:
		top.block.grouped = true
	case top.limit == "" && limits(word, next):
		top.limit = word
	}
}

// limits reports whether a word begins a clause that cuts off rows. OFFSET may also be the name of
// a column in MySQL.
func limits(word, next string) bool {
	switch word {
	case "LIMIT":
		return true
	case "FETCH":
		return next == "FIRST" || next == "NEXT"
	case "OFFSET":
		return next != "" && next[0] >= '0' && next[0] <= '9'
	case "ROWNUM":
		return next == "("
	}
	return false
}

// leave ends a scope, before the token next.
func (r *batchReader) leave(next string) {
	s := r.scopes[len(r.scopes)-1]
	r.scopes = r.scopes[:len(r.scopes)-1]
	if s.limit != "" && s.asked {
		r.addFault(s.limit, s.limit+" counts the rows of all of them", cureLimit)
	}
	if s.aggregate != "" && next != "OVER" && s.block.aggregate == "" {
		s.block.aggregate = s.aggregate
	}
}

// longestProof bounds the tokens of a statement, since each SELECT in it is read to its end.
const longestProof = 1000

// togetherFault returns why a lookup cannot be proven to find the same rows for several IDs together
// as for one at a time, or "". It follows each SELECT whose rows the ? decides: GROUP BY and each
// window's PARTITION BY must name the columns that hold the ID, without a function around them.
// These are the first by columns of the outermost SELECT, and the columns that are compared with
// the ? of another one, or with functions of the ?.
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
		if wordAt(tokens, i) != "SELECT" || wordAt(tokens, i-1) == "." {
			continue
		}
		s := readSelect(tokens, i)
		if !s.asked || !s.grouped && s.windows == nil {
			continue
		}
		ids := s.compared
		if s.outermost && !s.called {
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
	if wordAt(tokens, as) == "(" { // a list of columns
		_, as = items(tokens, as+1)
		as++
	}
	if at == 0 || wordAt(tokens, as) != "AS" || wordAt(tokens, as+1) != "(" {
		return ""
	}
	_, end := items(tokens, as+2)
	if !slices.Contains(tokens[as:min(end, len(tokens))], "?") {
		return ""
	}
	reads := 0
	for i := end; i < len(tokens); i++ {
		if plainName(tokens[i]) == plainName(tokens[at]) && tokens[i-1] != "." && wordAt(tokens, i+1) != "." {
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
	compared  [][]string   // the columns before IN (?) or IN (UNHEX(?))
	called    bool         // it is IN (UNHEX(?))
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
			first, last := sqltext.Element(tokens)
			inside := depthAt(tokens[first:], i-first)
			if first >= 3 && depth-inside == 1 && tokens[first-1] == "(" && wordAt(tokens, first-2) == "IN" {
				s.compared, s.called = before(tokens, first-2), first < last
			}
		case tokens[i-1] == ".":
		case depth == 0 && (word == "UNION" || word == "EXCEPT" || word == "INTERSECT"):
			return s
		case depth == 0 && word == "GROUP" && wordAt(tokens, i+1) == "BY":
			s.groups, _ = items(tokens, i+2, "HAVING", "ORDER", "LIMIT", "WINDOW", "WITH", "FOR", "UNION", "EXCEPT", "INTERSECT")
			s.grouped = true
		case word == "ROLLUP": // its rows are sums of several groups
			s.grouped, s.groups = true, nil
		case word == "OVER" && i+1 < len(tokens), depth == 0 && word == "AS" && wordAt(tokens, i+1) == "(" && slices.ContainsFunc(tokens[at:i], isWindow):
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
	if at+2 < len(tokens) && wordAt(tokens, at+1) == "PARTITION" {
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
