package capture

import (
	"context"
	"database/sql"
	"slices"
	"strings"

	"github.com/unstale/unstale/internal/sqltext"
)

// An object is a table or a function. An empty database means the connection's database.
type object struct{ database, name string }

func (o object) in(database string) object {
	if o.database == "" {
		o.database = database
	}
	return o
}

func (o object) String() string { return quote(o.database) + "." + quote(o.name) }

// A reading is the tables and functions of an expression, by its text.
type reading struct {
	tables []object
	calls  []object // names before a parenthesis, including the server's functions
	scopes []scope
}

// A scope is the text between two parentheses.
type scope struct {
	selects bool // it has a SELECT
	from    bool // in the list of tables
	table   bool // a table name comes next
}

// The words that end a list of tables.
var afterFrom = []string{"WHERE", "GROUP", "HAVING", "ORDER", "LIMIT", "UNION", "EXCEPT", "INTERSECT", "WINDOW", "FOR", "LOCK", "PROCEDURE"}

// readingOf parses an expression. It needs only the part of the grammar that identifies tables:
// names after FROM and JOIN and commas between these, except those that a WITH defines.
func readingOf(expression string) reading {
	tokens := sqltext.Tokens(expression)
	r := reading{scopes: []scope{{}}}
	at := func(i int) string {
		if i < 0 || i >= len(tokens) {
			return ""
		}
		return tokens[i]
	}
	for i := 0; i < len(tokens); i++ {
		top := &r.scopes[len(r.scopes)-1]
		switch word := strings.ToUpper(tokens[i]); {
		case word == "(":
			inner := scope{from: top.table, table: top.table}
			top.table = false
			r.scopes = append(r.scopes, inner)
		case word == ")":
			if len(r.scopes) > 1 {
				r.scopes = r.scopes[:len(r.scopes)-1]
			}
		case word == "SELECT":
			*top = scope{selects: true}
		case word == "FROM" && top.selects, (word == "JOIN" || word == "STRAIGHT_JOIN" || word == ",") && top.from:
			top.from, top.table = true, true
		case slices.Contains(afterFrom, word):
			top.from, top.table = false, false
		case isName(tokens[i]) && word != "LATERAL":
			o := object{name: unquote(tokens[i])}
			if at(i+1) == "." && isName(at(i+2)) {
				o = object{o.name, unquote(at(i + 2))}
				i += 2
			}
			switch {
			case at(i+1) == "(":
				r.calls = append(r.calls, o)
			case top.table:
				r.tables = append(r.tables, o)
			}
			top.table = false
		}
	}
	defined := definedByWith(tokens)
	r.tables = slices.DeleteFunc(r.tables, func(o object) bool {
		return o.database == "" && (indexFold(defined, o.name) >= 0 || strings.EqualFold(o.name, "dual"))
	})
	return r
}

// definedByWith returns the names before AS ( and (columns) AS (.
func definedByWith(tokens []string) (names []string) {
	for i := 1; i+1 < len(tokens); i++ {
		if !strings.EqualFold(tokens[i], "AS") || tokens[i+1] != "(" {
			continue
		}
		name := i - 1
		if tokens[name] == ")" {
			for name > 0 && tokens[name] != "(" {
				name--
			}
			name--
		}
		if name >= 0 && isName(tokens[name]) {
			names = append(names, unquote(tokens[name]))
		}
	}
	return names
}

func isName(token string) bool {
	c := token[:min(len(token), 1)]
	return c == "`" || c == "_" || c == "$" || c >= "A" && c <= "Z" || c >= "a" && c <= "z" || c >= "\x80"
}

// A function is a function of the database.
type function struct {
	name    string
	invoker bool // it runs with the caller's privileges
}

// Contract: no lock; the dictionary. An account sees the functions that it has a privilege for; a
// function that it may not execute is refused when the expression is tried.
const functionsSQL = `SELECT routine_name, security_type = 'INVOKER' FROM information_schema.routines
WHERE routine_schema = DATABASE() AND routine_type = 'FUNCTION'`

func readFunctions(ctx context.Context, db *sql.DB) ([]function, error) {
	return list(ctx, db, "the functions", func(scan func(...any) error) (f function, err error) {
		err = scan(&f.name, &f.invoker)
		return f, err
	}, functionsSQL)
}

// depend adds the tables and functions of a capture's expressions.
func (w *Wanted) depend(on *writer, functions []function) {
	for _, s := range on.expressions() {
		r := readingOf(s.Of(triedRow))
		w.Reads = append(w.Reads, r.tables...)
		for _, call := range r.calls {
			i := slices.IndexFunc(functions, func(f function) bool { return call.database == "" && strings.EqualFold(f.name, call.name) })
			if call.database != "" || i >= 0 {
				w.Calls = append(w.Calls, call)
			}
			if i >= 0 && functions[i].invoker && !slices.Contains(w.invokers, functions[i].name) {
				w.invokers = append(w.invokers, functions[i].name)
			}
		}
	}
}
