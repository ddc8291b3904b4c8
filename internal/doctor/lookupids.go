package doctor

import (
	"fmt"
	"slices"
	"strings"

	"github.com/unstale/unstale/internal/sqltext"
)

// mostIDs is how many IDs a lookup is asked for.
const mostIDs = 20

var (
	// beforeOperand are the words and characters that can stand before the left side of IN.
	beforeOperand = []string{"WHERE", "ON", "AND", "OR", "XOR", "NOT", "HAVING", "(", "&", "|"}
	// afterConditions are the words that end the conditions of a SELECT.
	afterConditions = []string{"GROUP", "HAVING", "ORDER", "LIMIT", "UNION", "EXCEPT", "INTERSECT", "WINDOW", "FOR", "LOCK", "PROCEDURE"}
)

// A statement is the text of a lookup with its tokens.
type statement struct {
	sql    string
	tokens []sqltext.Token
}

// A block is the innermost SELECT that has the ? among its conditions. The fields are numbers of
// tokens, but depth: so many parentheses are open between the SELECT and the ?.
type block struct{ sel, from, depth int }

// idQuery returns a query for IDs that a lookup may find something for: SELECT DISTINCT id FROM
// products WHERE id IN (id) if it asks SELECT ... FROM products WHERE id IN (?). It reports false
// if the text does not show what the ? is compared with.
func idQuery(sql string) (query string, ok bool) {
	s := &statement{sql, sqltext.Placed(sql)}
	mark := slices.IndexFunc(s.tokens, func(t sqltext.Token) bool { return t.Text == "?" })
	if mark < 4 || s.word(mark-2) != "IN" || s.word(mark-1) != "(" || s.word(mark+1) != ")" {
		return "", false
	}
	first, ok := s.operand(mark - 3)
	if !ok {
		return "", false
	}
	b, ok := s.block(first)
	if !ok {
		return "", false
	}
	operand := sql[s.tokens[first].At:s.after(mark-3)]
	columns := operand
	if s.word(first) == "(" {
		columns = operand[1 : len(operand)-1]
	}
	return fmt.Sprintf("%sSELECT DISTINCT %s %s%s%s\nLIMIT %d", s.with(b.sel), columns,
		sql[s.tokens[b.from].At:s.tokens[mark].At], operand, sql[s.after(mark):s.after(s.last(mark, b.depth+1))], mostIDs), true
}

// word returns a token in upper case, or "" if there is none.
func (s *statement) word(i int) string {
	if i < 0 || i >= len(s.tokens) {
		return ""
	}
	return strings.ToUpper(s.tokens[i].Text)
}

// after returns the place behind a token.
func (s *statement) after(i int) int { return s.tokens[i].At + len(s.tokens[i].Text) }

// operand returns the first token of the operand that ends with a token: a column, a function, or a
// list in parentheses.
func (s *statement) operand(last int) (first int, ok bool) {
	first = last
	switch c := s.word(last)[0]; {
	case c == ')':
		if first = s.opening(last); first < 1 {
			return 0, false
		}
		if !slices.Contains(beforeOperand, s.word(first-1)) {
			first-- // the name of a function
		}
	case c != '_' && c != '`' && (c < 'A' || c > 'Z') && c < 0x80:
		return 0, false
	}
	for s.word(first-1) == "." {
		first -= 2
	}
	return first, first > 0 && slices.Contains(beforeOperand, s.word(first-1))
}

// opening returns the parenthesis that the one at i closes, or -1.
func (s *statement) opening(i int) int {
	for depth := 0; i >= 0; i-- {
		switch s.word(i) {
		case ")":
			depth++
		case "(":
			if depth--; depth == 0 {
				return i
			}
		}
	}
	return -1
}

// block finds the SELECT of a condition.
func (s *statement) block(condition int) (b block, ok bool) {
	b.from = -1
	inner := 0
	for i := condition - 1; i >= 0; i-- {
		switch word := s.word(i); {
		case word == ")":
			inner++
		case word == "(" && inner == 0: // what is before it is around the condition
			b.depth, b.from = b.depth+1, -1
		case word == "(":
			inner--
		case inner > 0 || s.word(i-1) == ".":
		case word == "FROM":
			b.from = i
		case word == "SELECT":
			b.sel = i
			return b, b.from >= 0
		}
	}
	return b, false
}

// last returns the last token of the conditions that the token at i is among, so many parentheses
// deep.
func (s *statement) last(i, depth int) int {
	for i++; i < len(s.tokens); i++ {
		switch word := s.word(i); {
		case word == "(":
			depth++
		case word == ")":
			if depth--; depth < 0 {
				return i - 1
			}
		case depth == 0 && s.word(i-1) != "." && slices.Contains(afterConditions, word):
			return i - 1
		}
	}
	return len(s.tokens) - 1
}

// with returns the WITH of the whole statement if a SELECT is not inside it.
func (s *statement) with(sel int) string {
	depth, first := 0, -1
	for i := range sel + 1 {
		switch s.word(i) {
		case "(":
			depth++
		case ")":
			depth--
		case "SELECT":
			if depth == 0 && first < 0 {
				first = i
			}
		}
	}
	if depth != 0 || first < 0 {
		return ""
	}
	return s.sql[:s.tokens[first].At]
}
