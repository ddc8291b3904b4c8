package capture

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/unstale/unstale/internal/mysqlerr"
	"github.com/unstale/unstale/internal/sqltext"
	"github.com/unstale/unstale/invalidation"
)

// A need is a set of privileges that a definer must have.
type need struct {
	rights  []string
	kind    string // FUNCTION; "" for tables
	object  object
	columns []string // the columns that need them; none: all
	instead []string // each of these privileges is as good; then one of the columns is enough
}

func (n need) grantSQL(definer Account) string {
	rights := strings.Join(n.rights, ", ")
	if rights == "INSERT" { // into a table of the outbox, without its ID
		rights += " (" + strings.Join(n.columns, ", ") + ")"
	}
	return "GRANT " + rights + " ON " + strings.TrimLeft(n.kind+" ", " ") + n.object.String() + " TO " + definer.String() + ";"
}

// needs returns the privileges that the definer of all triggers needs in a database.
func (c *Capturer) needs(wanted *Wanted, database string) (all []need) {
	here := func(name string) object { return object{database, name} }
	all = append(all, need{[]string{"INSERT"}, "", here("cache_outbox"), outboxRows.columns, nil})
	if slices.ContainsFunc(c.Captures, func(one invalidation.Capture) bool { return one.SkipErrors }) {
		all = append(all, need{[]string{"INSERT"}, "", here(deadTable), deadColumns, nil})
	}
	var tables []string
	columns := map[string][]string{}
	for _, t := range wanted.Triggers {
		if !slices.Contains(tables, t.Table) {
			tables = append(tables, t.Table)
		}
		columns[t.Table] = append(columns[t.Table], t.columns()...)
	}
	for _, name := range tables {
		all = append(all, need{[]string{"SELECT"}, "", here(name), columns[name], nil}, need{[]string{"TRIGGER"}, "", here(name), nil, nil})
	}
	for _, read := range wanted.Reads {
		all = append(all, need{[]string{"SELECT"}, "", read.in(database), nil, nil})
	}
	for _, call := range wanted.Calls {
		all = append(all, need{[]string{"EXECUTE"}, "FUNCTION", call.in(database), nil, nil})
	}
	for _, key := range wanted.locks {
		all = append(all, need{[]string{"UPDATE"}, "", here(key.child), key.columns[:1], []string{"DELETE", "LOCK TABLES"}})
	}
	return all
}

// ofRow matches a column of the row, which the definer must be allowed to read.
var ofRow = regexp.MustCompile("(?i)\\b(?:OLD|NEW)\\s*\\.\\s*(`(?:[^`]|``)+`|[\\pL\\pN_$]+)")

// columns returns the columns of its table that the trigger reads.
func (t Trigger) columns() (names []string) {
	for _, m := range ofRow.FindAllStringSubmatch(t.Body, -1) {
		names = append(names, unquote(m[1]))
	}
	return names
}

// ErrUnreadable reports that the account of a Capturer cannot read the privileges of a definer.
var ErrUnreadable = errors.New("its privileges cannot be read; without INSERT on cache_outbox, and SELECT and TRIGGER on each table, every write to these fails")

// requireDefiner calls checkDefiner, and notifies if the privileges cannot be read.
func (c *Capturer) requireDefiner(ctx context.Context, wanted *Wanted, definer Account) error {
	err := c.checkDefiner(ctx, wanted, definer)
	if errors.Is(err, ErrUnreadable) {
		c.notify(err.Error())
		return nil
	}
	return err
}

// Contract: no lock; the server's own table of accounts.
const accountSQL = "SELECT COUNT(*) FROM mysql.user WHERE CAST(User AS BINARY) = CAST(? AS BINARY) AND LOWER(Host) = LOWER(?)"

// checkDefiner returns an error if the definer does not exist or lacks a privilege. Every write of
// the application would fail (1449, 1142, 1143, 1370). The error is ErrUnreadable if this account
// cannot tell.
func (c *Capturer) checkDefiner(ctx context.Context, wanted *Wanted, definer Account) error {
	own, err := currentAccount(ctx, c.DB)
	if err != nil {
		return err
	}
	g, err := definerGrants(ctx, c.DB, wanted.mariaDB, definer, own)
	if err != nil {
		return err
	}
	if g == nil {
		var found int
		switch err := c.DB.QueryRowContext(ctx, accountSQL, definer.User, definer.Host).Scan(&found); {
		case err == nil && found == 0:
			g = &Grants{nobody: true}
		case err == nil:
			return fmt.Errorf("the definer %s exists: %w", definer, ErrUnreadable)
		case isDenied(err) || mysqlerr.Number(err) == mysqlerr.NoColumnRight:
			return fmt.Errorf("the definer %s: %w", definer, ErrUnreadable)
		default:
			return fmt.Errorf("look for the account %s: %w", definer, err)
		}
	}
	database, err := askServer[string](ctx, c.DB, "the database", databaseSQL)
	if err != nil {
		return err
	}
	var missing []need
	for _, n := range c.needs(wanted, database) {
		if g.onTable("INSERT", n.object) && n.rights[0] == "INSERT" {
			c.notify(fmt.Sprintf("%s may choose the ID of a row of %s; use a definer that has INSERT on columns alone: docs/accounts.md#insert-privileges-by-column", definer, n.object.name))
		}
		n.rights = slices.DeleteFunc(n.rights, func(right string) bool {
			if n.kind == "FUNCTION" {
				return g.Executes(n.object.database, n.object.name)
			}
			if len(n.instead) > 0 {
				return g.onSome(right, n.object) || slices.ContainsFunc(n.instead, func(other string) bool { return g.onSome(other, n.object) })
			}
			return g.On(right, n.object.database, n.object.name, n.columns...)
		})
		if len(n.rights) > 0 && len(n.instead) > 0 {
			n.rights[0] += " (" + quote(n.columns[0]) + ")"
		}
		missing = mergeNeed(missing, n)
	}
	for _, name := range wanted.invokers {
		c.notify(fmt.Sprintf("the function %s runs with the rights of who calls it: see to it that %s may do what it does, or every write that calls it fails", name, definer))
	}
	if len(missing) == 0 {
		return nil
	}
	cause, cures := "has too few rights", []string(nil)
	if g.nobody {
		cause = "does not exist (1449)"
		cures = append(cures, "CREATE USER "+definer.String()+" ACCOUNT LOCK;")
	}
	for _, n := range missing {
		cures = append(cures, n.grantSQL(definer))
	}
	return errors.New("every write to these tables would fail, because the definer of their triggers " + cause + ":\n  " + strings.Join(cures, "\n  "))
}

// A Definer is an account that existing triggers run as.
type Definer struct {
	Account  string // as user@host
	Triggers int
	Err      error // what it lacks; it wraps ErrUnreadable if this account cannot tell
	Ahead    error // what it will lack, when a schema change goes on
}

// Definers checks the accounts that triggers of a plan run as.
func (c *Capturer) Definers(ctx context.Context, changes []Change) (all []Definer, err error) {
	wanted, _, err := c.wantedTriggers(ctx)
	if err != nil {
		return nil, err
	}
	return definersOf(ctx, *c, wanted, changes)
}

// definersOf is like Definers, without notices.
func definersOf(ctx context.Context, c Capturer, wanted *Wanted, changes []Change) (all []Definer, err error) {
	c.Notify = nil
	triggers := map[string][]Trigger{}
	for _, change := range changes {
		if change.Have != nil && change.State != RenamedAway { // the old table has no writes
			triggers[change.Have.Definer] = append(triggers[change.Have.Definer], change.Have.Trigger)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(triggers)) {
		own := *wanted
		own.Triggers = triggers[name]
		if !slices.ContainsFunc(own.Triggers, func(t Trigger) bool { return strings.Contains(t.Body, " FOR UPDATE") }) {
			own.locks = nil // an earlier version created them
		}
		d := Definer{Account: name, Triggers: len(own.Triggers), Err: c.checkDefiner(ctx, &own, accountOf(name))}
		if own.Triggers = ahead(own.Triggers, wanted.copies); d.Err == nil && len(own.Triggers) > 0 {
			if err := c.checkDefiner(ctx, &own, accountOf(name)); err != nil {
				d.Ahead = fmt.Errorf("once the schema change goes on: %w", err)
			}
		}
		all = append(all, d)
	}
	return all, nil
}

// mergeNeed adds privileges. It merges those on the same object.
func mergeNeed(all []need, n need) []need {
	if len(n.rights) == 0 {
		return all
	}
	i := slices.IndexFunc(all, func(other need) bool { return other.kind == n.kind && other.object == n.object })
	if i < 0 {
		return append(all, n)
	}
	for _, right := range n.rights {
		if !slices.Contains(all[i].rights, right) {
			all[i].rights = append(all[i].rights, right)
		}
	}
	return all
}

func (c *Capturer) notify(notice string) {
	if c.Notify != nil {
		c.Notify(notice)
	}
}

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
	return queryAll(ctx, db, "the functions", func(f *function) []any { return []any{&f.name, &f.invoker} }, functionsSQL)
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
