package invalidation

import (
	"slices"
	"strings"
)

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
		r.read(i)
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
		r.add(b.aggregate, b.aggregate+" without GROUP BY makes one row of all of them", cure)
	}
	return r.found
}

func (r *batchReader) add(text, problem, cure string) {
	fault := templateError{text, "a lookup is asked for several IDs together, and " + problem, cure}
	if !slices.Contains(r.found, fault) {
		r.found = append(r.found, fault)
	}
}

func (r *batchReader) word(i int) string {
	if i < 0 || i >= len(r.tokens) {
		return ""
	}
	return strings.ToUpper(r.tokens[i])
}

func (r *batchReader) read(i int) {
	top := &r.scopes[len(r.scopes)-1]
	switch word, next := r.word(i), r.word(i+1); {
	case word == "(":
		inner := sqlScope{block: top.block}
		if name := r.word(i - 1); top.block != nil && slices.Contains(aggregates, name) && r.word(i-2) != "." {
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
	case r.word(i-1) == ".": // a column may have any name
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
		r.add(s.limit, s.limit+" counts the rows of all of them", cureLimit)
	}
	if s.aggregate != "" && next != "OVER" && s.block.aggregate == "" {
		s.block.aggregate = s.aggregate
	}
}
