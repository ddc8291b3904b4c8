package doctor

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/unstale/unstale/internal/capture"
)

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

func (e *Exam) readsOfLookups(ctx context.Context, db *sql.DB) (*lookupReads, error) {
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
