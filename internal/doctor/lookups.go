package doctor

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/unstale/unstale/internal/capture"
	"github.com/unstale/unstale/internal/mysqlerr"
	"github.com/unstale/unstale/internal/output"
	"github.com/unstale/unstale/internal/session"
	"github.com/unstale/unstale/internal/sqltext"
)

// lookupsRun checks each lookup of the map, in a session with the settings of a worker.
func lookupsRun(ctx context.Context, e *Inputs) (all []Finding, err error) {
	list := e.Map.Lookups()
	account, _, err := whoAndWhere(ctx, e.MySQL.DB())
	if err != nil {
		return nil, err
	}
	for _, fault := range e.Map.Deprecations() {
		all = append(all, found(Warning, "the next release refuses the map: "+fault.Problem, fault.String(), fault.Cure))
	}
	var unproven []error
	for _, l := range list {
		switch proof, err := CheckLookup(ctx, e.MySQL, l); {
		case ctx.Err() != nil:
			return all, fmt.Errorf("from that of %s on: %w", l.Param, errors.Join(err, ctx.Err()))
		case err != nil:
			all = append(all, lookupFinding(l.Param, err, account))
		case proof.Differs != "":
			all = append(all, found(Critical, "the lookup of "+l.Param+" is right for one ID and wrong for several, so keys stay stale", proof.Differs, CureDiffers))
		case proof.Unproven != "" && !l.Single:
			unproven = append(unproven, fmt.Errorf("%s: %v", l.Param, proof))
		}
	}
	all = orOK(all, "%s run", output.Things(len(list), "lookup"))
	if len(unproven) > 0 {
		all = append(all, unknown("whether lookups find the same for several IDs together as one by one", errors.Join(unproven...), "run this check again when the tables have rows"))
	}
	return all, nil
}

func lookupFinding(param string, err error, account string) Finding {
	cure := LookupCure(err)
	switch n := mysqlerr.Number(err); {
	case session.IsGrouping(err):
		return found(Warning, "the next release refuses the lookup of "+param, err.Error(), cure)
	case n == mysqlerr.NoRight, n == mysqlerr.NoColumnRight:
		cure = "GRANT SELECT ON the table that it names TO " + account + ";"
		if _, table, ok := strings.Cut(err.Error(), "for table "); ok {
			cure = "GRANT SELECT ON " + strings.ReplaceAll(strings.TrimSpace(table), "'", "`") + " TO " + account + ";"
		}
	}
	return found(Critical, "the lookup of "+param+" fails, so its rows are delayed and then dead-lettered", err.Error(), cure)
}

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
	depths []int // how many parentheses are around each token; for a parenthesis, around the pair
}

func newStatement(sql string) *statement {
	s := &statement{sql: sql, tokens: sqltext.Placed(sql)}
	depth := 0
	for i := range s.tokens {
		if s.word(i) == ")" {
			depth--
		}
		s.depths = append(s.depths, depth)
		if s.word(i) == "(" {
			depth++
		}
	}
	return s
}

// idQuery returns a query for IDs that a lookup may find something for: SELECT DISTINCT id FROM
// products WHERE id IN (id) if it asks SELECT ... FROM products WHERE id IN (?). It reports false
// if the text does not show what the ? is compared with.
func idQuery(sql string) (query string, ok bool) {
	s := newStatement(sql)
	mark, last := sqltext.Element(sqltext.Tokens(sql))
	if mark < 4 || s.word(mark-2) != "IN" || s.word(mark-1) != "(" || s.word(last+1) != ")" {
		return "", false
	}
	first, ok := s.operand(mark - 3)
	if !ok {
		return "", false
	}
	sel, from, ok := s.block(first)
	if !ok {
		return "", false
	}
	operand := sql[s.tokens[first].At:s.after(mark-3)]
	columns := operand
	if s.word(first) == "(" {
		columns = operand[1 : len(operand)-1]
	}
	if mark < last { // a function makes what is compared of an ID
		if columns = s.idOf(sel, operand, sql[s.tokens[mark].At:s.after(last)]); columns == "" {
			return "", false
		}
	}
	return fmt.Sprintf("%sSELECT DISTINCT %s %s%s%s\nLIMIT %d", s.with(sel), columns,
		sql[s.tokens[from].At:s.tokens[mark].At], operand, sql[s.after(last):s.after(s.last(last, sel))], mostIDs), true
}

// idOf returns the ID of a row whose operand is compared with a function of the ?: the first column
// of the outermost SELECT, if that is the one at a token, or the inverse of UNHEX, or "".
func (s *statement) idOf(sel int, operand, function string) string {
	if s.depths[sel] > 0 {
		if strings.EqualFold(function, "UNHEX(?)") {
			return "LOWER(HEX(" + operand + "))"
		}
		return ""
	}
	first := sel + 1
	if word := s.word(first); word == "DISTINCT" || word == "ALL" {
		first++
	}
	for i := first + 1; i < len(s.tokens); i++ {
		if s.word(i) == "," && s.depths[i] == 0 {
			return s.sql[s.tokens[first].At:s.tokens[i].At]
		}
	}
	return ""
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
	depth := s.depths[i]
	for i--; i >= 0 && (s.word(i) != "(" || s.depths[i] != depth); {
		i--
	}
	return i
}

// block finds the innermost SELECT that has a condition, and its FROM.
func (s *statement) block(condition int) (sel, from int, ok bool) {
	depth, from := s.depths[condition], -1
	for i := condition - 1; i >= 0; i-- {
		switch word := s.word(i); {
		case s.depths[i] < depth: // a parenthesis: what is before it is around the condition
			depth, from = s.depths[i], -1
		case s.depths[i] > depth || s.word(i-1) == ".":
		case word == "FROM":
			from = i
		case word == "SELECT":
			return i, from, from >= 0
		}
	}
	return 0, 0, false
}

// last returns the last token of the conditions of a SELECT that the token at i is among.
func (s *statement) last(i, sel int) int {
	for i++; i < len(s.tokens); i++ {
		depth := s.depths[i] - s.depths[sel]
		if depth < 0 || depth == 0 && s.word(i-1) != "." && slices.Contains(afterConditions, s.word(i)) {
			return i - 1
		}
	}
	return len(s.tokens) - 1
}

// with returns the WITH of the whole statement if a SELECT is not inside it.
func (s *statement) with(sel int) string {
	if s.depths[sel] != 0 {
		return ""
	}
	first := 0
	for s.word(first) != "SELECT" || s.depths[first] != 0 {
		first++
	}
	return s.sql[:s.tokens[first].At]
}

// Contract for both: no row of a table; the account sees what it may use. A view or a routine with
// SQL SECURITY INVOKER reads with the privileges of the worker's account.
const (
	invokersSQL = `SELECT TABLE_NAME FROM information_schema.VIEWS WHERE TABLE_SCHEMA = DATABASE() AND SECURITY_TYPE = 'INVOKER'
UNION SELECT ROUTINE_NAME FROM information_schema.ROUTINES WHERE ROUTINE_SCHEMA = DATABASE() AND SECURITY_TYPE = 'INVOKER'`
	tableNamesSQL = "SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() ORDER BY TABLE_NAME"
)

// lookupReads are the tables, columns and functions in the text of the map's lookups.
type lookupReads struct {
	noMap    bool
	queries  []string
	tables   []string // of the database, that they name
	invokers []string // views and routines that they name: the text does not show what these read
}

func (e *Inputs) readsOfLookups(ctx context.Context, db *sql.DB) (*lookupReads, error) {
	r := &lookupReads{noMap: e.Map == nil}
	if r.noMap {
		return r, nil
	}
	for _, l := range e.Map.Lookups() {
		r.queries = append(r.queries, l.SQL)
	}
	others := func(name string) bool { return !r.names(name) }
	tables, err := texts(ctx, db, tableNamesSQL)
	if err != nil {
		return nil, fmt.Errorf("list the tables: %w", err)
	}
	invokers, err := texts(ctx, db, invokersSQL)
	if err != nil {
		return nil, fmt.Errorf("list the views: %w", err)
	}
	r.tables, r.invokers = slices.DeleteFunc(tables, others), slices.DeleteFunc(invokers, others)
	return r, nil
}

// names reports whether a lookup names a table, a view or a routine.
func (r *lookupReads) names(name string) bool {
	named := regexp.MustCompile(`(?i)(^|\W)` + regexp.QuoteMeta(name) + `(\W|$)`)
	return slices.ContainsFunc(r.queries, named.MatchString)
}

// isLookups reports whether lookups may need such a privilege on their objects.
func isLookups(h *capture.Held, right string) bool {
	return right == "SELECT" || right == "EXECUTE" && h.Kind != ""
}

// unclear returns why a lookup may need SELECT or EXECUTE on something that no lookup names, or ""
// if none does.
func (r *lookupReads) unclear(h *capture.Held) string {
	switch {
	case h.Name == "*" || strings.HasPrefix(h.Name, "cache_outbox") || r.names(h.Name):
		return ""
	case r.noMap:
		return "without a map"
	case len(r.invokers) > 0:
		return "lookups name " + strings.Join(r.invokers, ", ") + ", which may need it"
	}
	return ""
}

// unjudged returns the grants that lookups may need.
func (r *lookupReads) unjudged(held []capture.Held) (all []string) {
	for i := range held {
		for _, right := range slices.Sorted(maps.Keys(held[i].Rights)) {
			if why := r.unclear(&held[i]); why != "" && isLookups(&held[i], right) {
				all = append(all, why+": "+right+" on "+held[i].On())
			}
		}
	}
	return all
}

// create returns the statements that create an account for workers, to replace account. It takes
// nothing from account: an administrator or another program may use it too.
func (r *lookupReads) create(database, account string) (all []string) {
	user, host, _ := strings.Cut(account, "'@'")
	name := "unstale_worker"
	if strings.TrimPrefix(user, "'") == name {
		name += "_2"
	}
	account = "'" + name + "'@'" + host
	all = append(all, "CREATE USER "+account+" IDENTIFIED BY 'change me';")
	for _, t := range WorkerRights {
		all = append(all, fmt.Sprintf("GRANT %s ON %s TO %s;", strings.Join(t.Rights, ", "), (&capture.Held{Database: database, Name: t.Table}).On(), account))
	}
	for _, table := range r.tables {
		if !strings.HasPrefix(table, "cache_outbox") {
			all = append(all, fmt.Sprintf("GRANT SELECT ON %s TO %s;", (&capture.Held{Database: database, Name: table}).On(), account))
		}
	}
	return all
}
