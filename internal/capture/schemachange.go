package capture

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/unstale/unstale/internal/output"
	"github.com/unstale/unstale/invalidation"
)

// A SchemaChange is a captured table during or after a schema change, and what to do next.
type SchemaChange struct {
	Table    string      `json:"table"`
	State    ChangeState `json:"state"`
	Found    string      `json:"found"`              // a sentence about the table
	Next     []string    `json:"next,omitempty"`     // commands for a shell
	Triggers []string    `json:"triggers,omitempty"` // names of existing triggers that it explains
}

// A ChangeState is the state of a schema change.
type ChangeState string

// The states of schema changes.
const (
	Copying  ChangeState = "copying"  // the table and its triggers are in use, and a copy exists
	Moving   ChangeState = "moving"   // triggers have been moved to the copy
	Replaced ChangeState = "replaced" // the triggers are on the old table
	Foreign  ChangeState = "foreign"  // another account, mode or tool has created the triggers
	Left     ChangeState = "left"     // the old table still exists
)

// Explains reports whether a change of a trigger is a part of the schema change.
func (s *SchemaChange) Explains(c Change) bool {
	if c.Have == nil {
		return c.Table() == s.Table && (c.State == Missing && s.State == Replaced || c.State == Moved && s.State == Moving)
	}
	return slices.Contains(s.Triggers, c.Have.Name)
}

// A tableCopy is a table that may take the place of a captured one.
type tableCopy struct {
	name, of string
	tool     string // "": a name that people choose, too
	moves    bool   // the tool moves triggers to it before it takes the place
}

// took reports whether a tool has moved a wanted trigger to the copy.
func (c tableCopy) took(w Trigger, existing []Existing) bool {
	onCopy := w
	onCopy.Table = c.name
	return c.moves && c.of == w.Table && slices.ContainsFunc(existing, onCopy.sameEvent)
}

const (
	ghOst = "gh-ost"
	ptOSC = "pt-online-schema-change"

	untilEnd = "wait until it has ended, or if it was interrupted, drop its triggers (pt_osc_...) and then that table"
)

// Contract: no lock; the dictionary. Triggers of pt-online-schema-change name its copy.
const ptTriggersSQL = `SELECT event_object_table, action_statement FROM information_schema.triggers
WHERE trigger_schema = DATABASE() AND event_manipulation = 'INSERT' AND trigger_name LIKE 'pt\_osc\_%'`

var intoCopy = regexp.MustCompile("REPLACE INTO `(?:[^`]|``)+`\\.(`(?:[^`]|``)+`)")

// readCopies returns the copies of captured tables, and the names of all tables.
func readCopies(ctx context.Context, db *sql.DB, captured []string) (copies []tableCopy, tables []string, err error) {
	type trigger struct{ table, body string }
	running, err := queryAll(ctx, db, "triggers of "+ptOSC, func(t *trigger) []any { return []any{&t.table, &t.body} }, ptTriggersSQL)
	if err != nil {
		return nil, nil, err
	}
	tables, err = queryAll(ctx, db, "the names of tables", func(name *string) []any { return []any{name} }, tableNamesSQL)
	for _, table := range captured {
		for _, t := range running {
			if m := intoCopy.FindStringSubmatch(t.body); m != nil && t.table == table {
				copies = append(copies, tableCopy{unquote(m[1]), table, ptOSC, true})
			}
		}
		for _, name := range tables {
			known := slices.Contains(captured, name) || slices.ContainsFunc(copies, func(c tableCopy) bool { return c.name == name })
			switch {
			case known:
			case name == toolName(table, "_gho"):
				copies = append(copies, tableCopy{name, table, ghOst, false})
			case strings.TrimLeft(name, "_") == strings.TrimLeft(table, "_")+"_new":
				copies = append(copies, tableCopy{name, table, "", false})
			}
		}
	}
	return copies, tables, err
}

// toolName returns the name that gh-ost gives a table: up to 64 bytes.
func toolName(table, suffix string) string {
	return "_" + table[:min(len(table), 64-1-len(suffix))] + suffix
}

// ownName matches the name of a trigger that no tool has extended.
var ownName = regexp.MustCompile(`^` + Prefix + `[a-z]+_[0-9a-f]{16}(_[0-9]+)?$`)

// madeFor reports whether e was created on a table that has had this name.
func (e Existing) madeFor(table string) bool {
	t := e.Trigger
	t.Table = table
	return strings.HasPrefix(e.Name, t.Name(1))
}

// SchemaChanges explains the changes of a plan by schema changes.
func (c *Capturer) SchemaChanges(ctx context.Context, changes []Change) (all []SchemaChange, err error) {
	var captured []string
	for _, change := range changes {
		if change.Want != nil && !slices.Contains(captured, change.Want.Table) {
			captured = append(captured, change.Want.Table)
		}
	}
	copies, tables, err := readCopies(ctx, c.DB, captured)
	if err != nil {
		return nil, err
	}
	tables = slices.DeleteFunc(tables, func(name string) bool { return slices.Contains(captured, name) })
	for _, table := range captured {
		all = append(all, explain(c, table, changes, slices.DeleteFunc(slices.Clone(copies), func(one tableCopy) bool { return one.of != table }), tables)...)
	}
	return all, nil
}

// explain returns the schema changes of one table.
func explain(c *Capturer, table string, changes []Change, copies []tableCopy, tables []string) (all []SchemaChange) {
	of := func(fits func(Change) bool) (list []Change) {
		for _, change := range changes {
			if (change.Of == table || change.Of == "" && change.Table() == table) && fits(change) {
				list = append(list, change)
			}
		}
		return list
	}
	in := func(state State) []Change { return of(func(change Change) bool { return change.State == state }) }
	add := func(state ChangeState, explained []Change, next []string, found string, args ...any) {
		s := SchemaChange{Table: table, State: state, Found: fmt.Sprintf(found, args...), Next: next}
		for _, change := range explained {
			if change.Have != nil {
				s.Triggers = append(s.Triggers, change.Have.Name)
			}
		}
		all = append(all, s)
	}
	apply, again := c.Definer.applyCommand(), []string{c.Definer.applyCommand()}
	if slices.ContainsFunc(c.Captures, func(one invalidation.Capture) bool { return one.Table == table }) {
		again = append(again, "unstale replay --table "+output.Shell(table))
	}
	runs := false
	for _, one := range copies {
		on := of(func(change Change) bool { return change.State == OnCopy && change.Table() == one.name })
		switch {
		case one.moves && len(in(Moved)) > 0:
			add(Moving, on, again, "%s moves its triggers to %s; %s", one.tool, one.name, untilEnd)
		case one.moves:
			add(Copying, on, []string{apply}, "%s copies it to %s; %s", one.tool, one.name, untilEnd)
		case one.tool != "":
			add(Copying, on, []string{apply}, "%s copies it to %s; wait until it has ended, or if it was interrupted, drop that table", one.tool, one.name)
		case len(on) > 0:
			add(Copying, on, []string{apply}, "%s has its triggers too, as if to take its place; wait for that, or drop that table", one.name)
		default:
			continue
		}
		runs = runs || one.tool != ""
	}
	missing, away := in(Missing), in(RenamedAway)
	kept := of(func(change Change) bool { return change.Of == "" && change.Have != nil })
	if len(missing) > 0 && len(away) > 0 && len(kept) == 0 {
		add(Replaced, away, again, "another table has its name now, and its triggers are on %s: its writes leave no row", away[0].Table())
		return all
	}
	foreign := of(func(change Change) bool { return change.isForeign(c.Definer) })
	if len(foreign) > 0 {
		e, mode := foreign[0].Have, ""
		if !e.isStrict() {
			mode = ", in a sql_mode that cuts long values"
		}
		add(Foreign, foreign, []string{apply}, "its triggers are not those that apply creates: %s runs as %s%s", e.Name, e.Definer, mode)
	}
	for _, name := range tables {
		on := slices.DeleteFunc(slices.Clone(away), func(change Change) bool { return change.Table() != name })
		if runs || len(missing) > 0 || len(on) == 0 && !isOldName(name, table) {
			continue
		}
		var next []string // no DROP TABLE, which an operator would paste
		if len(on)+len(foreign) > 0 {
			next = []string{apply}
		}
		add(Left, on, next, "%s, whose place it took, still exists; when nothing needs that table, drop it", name)
	}
	return all
}

// isOldName reports whether a tool renames a replaced table so. gh-ost may add the time.
func isOldName(name, table string) bool {
	if name == toolName(table, "_del") || strings.TrimLeft(name, "_") == table+"_old" && name[0] == '_' {
		return true
	}
	m := timedOld.FindStringSubmatch(name)
	return m != nil && toolName(table, m[1]) == name
}

var timedOld = regexp.MustCompile(`(_\d{14}_del)$`)

// isForeign reports whether apply for a definer, if that is known, would not have created the
// existing trigger.
func (c Change) isForeign(definer Account) bool {
	e := c.Have
	return c.Want != nil && e != nil && c.Differs() && (!ownName.MatchString(e.Name) || !e.isStrict() || definer != Account{} && !definer.is(e.Definer))
}

// applyCommand returns the command that creates the triggers for a definer.
func (a Account) applyCommand() string {
	if a == (Account{}) {
		return "unstale capture apply"
	}
	return "unstale capture apply --definer " + output.Shell(a.User+"@"+a.Host)
}

// ahead returns triggers on the tables where a schema change will have them.
func ahead(triggers []Trigger, copies []tableCopy) (all []Trigger) {
	for _, t := range triggers {
		for _, one := range copies {
			switch {
			case one.moves && t.Table == one.of:
				t.Table = one.name
			case t.Table == one.name:
				t.Table = one.of
			default:
				continue
			}
			all = append(all, t)
		}
	}
	return all
}

// checkAhead returns an error if a definer of existing triggers lacks a privilege that these need
// as soon as a schema change moves them or swaps the tables.
func checkAhead(ctx context.Context, c *Capturer, wanted *Wanted, changes []Change) error {
	if len(wanted.copies) == 0 {
		return nil
	}
	definers, err := definersOf(ctx, *c, wanted, changes)
	for _, d := range definers {
		if !errors.Is(d.Err, ErrUnreadable) {
			err = errors.Join(err, d.Err)
		}
		err = errors.Join(err, d.Ahead)
	}
	return err
}
