package capture

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/unstale/unstale/invalidation"
)

// A need is rights that a definer must have.
type need struct {
	rights  []string
	kind    string // FUNCTION; "" for tables
	object  object
	columns []string // for which alone they are needed; none: for all
}

func (n need) text(definer Account) string {
	return "GRANT " + strings.Join(n.rights, ", ") + " ON " + strings.TrimLeft(n.kind+" ", " ") + n.object.String() + " TO " + definer.String() + ";"
}

// needs are what the definer of all triggers must be allowed to do in a database.
func (c *Capturer) needs(wanted *Wanted, database string) (all []need) {
	here := func(name string) object { return object{database, name} }
	all = append(all, need{[]string{"INSERT"}, "", here("cache_outbox"), outboxRows.columns})
	if slices.ContainsFunc(c.Captures, func(one invalidation.Capture) bool { return one.SkipErrors }) {
		all = append(all, need{[]string{"INSERT"}, "", here(deadTable), deadColumns})
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
		all = append(all, need{[]string{"SELECT"}, "", here(name), columns[name]}, need{[]string{"TRIGGER"}, "", here(name), nil})
	}
	for _, read := range wanted.Reads {
		all = append(all, need{[]string{"SELECT"}, "", read.in(database), nil})
	}
	for _, call := range wanted.Calls {
		all = append(all, need{[]string{"EXECUTE"}, "FUNCTION", call.in(database), nil})
	}
	return all
}

// ofRow matches a column of the row, which the definer must be allowed to read.
var ofRow = regexp.MustCompile("(?i)\\b(?:OLD|NEW)\\s*\\.\\s*(`(?:[^`]|``)+`|[\\pL\\pN_$]+)")

// columns are those of its table that the trigger reads.
func (t Trigger) columns() (names []string) {
	for _, m := range ofRow.FindAllStringSubmatch(t.Body, -1) {
		names = append(names, unquote(m[1]))
	}
	return names
}

// checkDefiner says what the definer may not do, for which every write of the shop would fail (1142, 1143, 1370). It notifies where
// that cannot be told.
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
		c.notify("the rights of " + definer.String() + " cannot be read; without INSERT on cache_outbox, and SELECT and TRIGGER on each table, every write to these fails")
		return nil
	}
	database, err := database(ctx, c.DB)
	if err != nil {
		return err
	}
	var missing []need
	for _, n := range c.needs(wanted, database) {
		n.rights = slices.DeleteFunc(n.rights, func(right string) bool {
			if n.kind == "FUNCTION" {
				return g.Executes(n.object.database, n.object.name)
			}
			return g.On(right, n.object.database, n.object.name, n.columns...)
		})
		missing = add(missing, n)
	}
	for _, name := range wanted.invokers {
		c.notify(fmt.Sprintf("the function %s runs with the rights of who calls it: see to it that %s may do what it does, or every write that calls it fails", name, definer))
	}
	if len(missing) == 0 {
		return nil
	}
	var cures []string
	if g.nobody {
		cures = append(cures, "CREATE USER "+definer.String()+" ACCOUNT LOCK;")
	}
	for _, n := range missing {
		cures = append(cures, n.text(definer))
	}
	return errors.New("every write to these tables would fail, because the definer of their triggers has too few rights:\n  " + strings.Join(cures, "\n  "))
}

// add adds rights that are missing, to those on the same object if there are any.
func add(all []need, n need) []need {
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
