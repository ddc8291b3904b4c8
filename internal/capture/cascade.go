package capture

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// cascaded are triggers on the parents of captured tables. A delete or update by a foreign key
// fires no trigger of the child, so the parent's trigger inserts the rows in advance.
type cascaded struct {
	keys    []foreignKey
	mariaDB bool
	share   string              // suffix of a SELECT of children
	order   []string            // of the triggers
	bodies  map[string][]string // by parent and event
	reads   []string            // tables that the triggers select from
	locks   []foreignKey        // whose children the triggers lock for an update
	trees   []string            // triggers that read a tree in their own table
}

// child is the alias, in a trigger, of the row that a foreign key will change.
const child = "unstale_child"

// newCascaded depends on the server. In MySQL with READ COMMITTED, the SELECT of a trigger would
// see the data from the start of the statement, and miss later changes of a child. FOR SHARE makes
// it see the latest data, and wait for sessions that change it, on each level of a tree. MariaDB
// does so without it.
func newCascaded(keys []foreignKey, mariaDB bool) *cascaded {
	c := &cascaded{keys: keys, mariaDB: mariaDB, bodies: map[string][]string{}}
	if !mariaDB {
		c.share = " FOR SHARE"
	}
	return c
}

// cover adds the effects of foreign keys to a writer.
func (c *cascaded) cover(w *writer) error {
	for _, key := range c.keys {
		if key.child != w.table.Name || w.IgnoreCascades {
			continue
		}
		if err := key.hidden(); err != nil {
			return err
		}
		matters := w.Update && w.uses(key.columns)
		if key.empties() && matters && w.computes(key.columns) {
			return uncovered(key, errComputed)
		}
		if key.onDelete == "CASCADE" && w.Delete || key.empties() && matters {
			if err := c.coverDelete(w, []foreignKey{key}); err != nil {
				return uncovered(key, err)
			}
		}
		if sets(key.onUpdate) && matters {
			if err := c.coverUpdate(w, key); err != nil {
				return uncovered(key, err)
			}
		}
	}
	return nil
}

// uncovered describes the line that the map needs.
func uncovered(key foreignKey, err error) error {
	return fmt.Errorf("%s changes it without firing a trigger, and that cannot be covered: %w; write rows for that yourself and add 'cascades: ignore' to the capture, or change the key",
		key, err)
}

var (
	errElsewhere = errors.New("its parent is in another database")
	errComputed  = errors.New("an expression uses its columns")
)

// below returns the keys by which a delete in a table deletes more rows of the same table.
func (c *cascaded) below(table string) (all []foreignKey) {
	for _, key := range c.keys {
		if key.child == table && key.parent == table && key.onDelete == "CASCADE" {
			all = append(all, key)
		}
	}
	return all
}

// coverDelete adds triggers for the deletion of a parent at the end of a path of keys, which begins
// at the captured table, and of the parent's own parents.
func (c *cascaded) coverDelete(w *writer, path []foreignKey) error {
	last := path[len(path)-1]
	if last.elsewhere {
		return errElsewhere
	}
	own := c.below(last.parent)
	switch more := c.below(last.child); {
	case last.parent == last.child:
	case last.onDelete == "CASCADE" && len(more) > 0:
		return fmt.Errorf("%s goes on from there", more[0])
	case len(own) > 0:
		return fmt.Errorf("%s deletes more of its parents", own[0])
	}
	tables := []string{path[0].child}
	from := "FROM " + quote(path[0].child) + " AS " + child
	alias := child
	for i, key := range path[:len(path)-1] {
		parent := fmt.Sprint("unstale_parent", i+1)
		from += "\n      JOIN " + quote(key.parent) + " AS " + parent + " ON " + key.join(alias, parent)
		alias, tables = parent, append(tables, key.parent)
	}
	with, deleted, locks := "", oldRow, ""
	if len(own) > 0 {
		with, deleted = c.tree(own, last), treeRow
		from += "\n      JOIN " + treeRow
		c.trees = append(c.trees, last.parent+"\x00DELETE")
	}
	for level := len(path) - 1; level > 0; level-- {
		locks += c.lockLevel(path[level:])
	}
	c.extendTrigger(last.parent, "DELETE", w.guarded(locks+c.insertSelect(w, "    ", w.id.of(child), with, from+"\n      WHERE "+last.join(alias, deleted), nil)), tables...)
	for _, next := range c.keys {
		if next.child != last.parent {
			continue
		}
		if err := next.hidden(); err != nil {
			return err
		}
		if next.onDelete != "CASCADE" || next.parent == next.child {
			continue
		}
		if slices.ContainsFunc(path, func(k foreignKey) bool { return k.child == next.parent }) {
			return fmt.Errorf("%s deletes in a circle", next)
		}
		if err := c.coverDelete(w, append(slices.Clone(path), next)); err != nil {
			return err
		}
	}
	return nil
}

// coverUpdate adds a trigger for another key of a parent.
func (c *cascaded) coverUpdate(w *writer, key foreignKey) error {
	switch i := slices.IndexFunc(c.keys, func(k foreignKey) bool {
		return k.child == key.parent && (sets(k.onUpdate) || k.empties()) && k.touches(key.references)
	}); {
	case key.elsewhere:
		return errElsewhere
	case i >= 0:
		return fmt.Errorf("%s changes that of the parent in turn", c.keys[i])
	case w.computes(key.columns):
		return errComputed
	}
	var same []string
	for _, reference := range key.references {
		same = append(same, fmt.Sprintf("CAST(OLD.%[1]s AS BINARY) <=> CAST(NEW.%[1]s AS BINARY)", quote(reference)))
	}
	from := "FROM " + quote(key.child) + " AS " + child + "\n      WHERE " + key.join(child, oldRow)
	becomes := func(column Column) (string, bool) { // of the child
		i := indexFold(key.columns, column.Name)
		if i < 0 {
			return "", false
		}
		if key.onUpdate != "CASCADE" {
			return "NULL", true
		}
		column.Name = key.references[i]
		text, err := column.textSQL(newRow)
		return text, err == nil
	}
	body := "    IF NOT (" + strings.Join(same, " AND ") + ") THEN\n" + c.insertSelect(w, "      ", w.id.of(child), "", from, becomes)
	if column, err := w.table.column(w.id.column); err == nil {
		if id, moved := becomes(column); moved && id != "NULL" {
			body += c.insertSelect(w, "      ", id, "", from, becomes)
		}
	}
	c.extendTrigger(key.parent, "UPDATE", w.guarded(body+"    END IF;\n"), key.child)
	return nil
}

// extendTrigger adds statements to the trigger of a parent.
func (c *cascaded) extendTrigger(parent, event, body string, reads ...string) {
	name := parent + "\x00" + event
	if _, known := c.bodies[name]; !known {
		c.order = append(c.order, name)
	}
	if !slices.Contains(c.bodies[name], body) {
		c.bodies[name] = append(c.bodies[name], body)
	}
	for _, table := range reads {
		if !slices.Contains(c.reads, table) {
			c.reads = append(c.reads, table)
		}
	}
}

func (c *cascaded) triggers() (all []Trigger) {
	for _, name := range c.order {
		parent, event, _ := strings.Cut(name, "\x00")
		t := newTrigger(parent, "BEFORE", event, c.bodies[name])
		t.Tree = slices.Contains(c.trees, name)
		all = append(all, t)
	}
	return all
}

// uses reports whether a change of one of the columns counts for the capture.
func (w *writer) uses(columns []string) bool {
	if len(w.Watch) == 0 || w.computes(columns) || slices.ContainsFunc(w.Watch, w.isVirtual) {
		return true
	}
	used := append(slices.Clone(w.Watch), w.id.column)
	for _, p := range w.params {
		used = append(used, p.column)
	}
	return slices.ContainsFunc(columns, func(c string) bool { return indexFold(used, c) >= 0 })
}

// isVirtual reports whether a column is computed from others, possibly from columns of a key.
func (w *writer) isVirtual(name string) bool {
	column, err := w.table.column(name)
	return err == nil && column.Virtual
}

// computes reports whether an expression may use one of the columns.
func (w *writer) computes(columns []string) bool {
	if w.isVirtual(w.id.column) || slices.ContainsFunc(w.params, func(p param) bool { return w.isVirtual(p.column) }) {
		return true
	}
	expressions := ""
	if w.id.column == "" {
		expressions = string(w.ID)
	}
	for _, p := range w.Params {
		if p.Source.IsExpression() {
			expressions += "\n" + string(p.Source)
		}
	}
	expressions = strings.ToLower(expressions)
	return slices.ContainsFunc(columns, func(c string) bool { return strings.Contains(expressions, strings.ToLower(c)) })
}

// paramsOf returns the params of a child's row, with its new values.
func (w *writer) paramsOf(becomes func(Column) (string, bool)) string {
	return w.paramsObject(func(p param) []string {
		values := []string{p.of(child)}
		if becomes == nil || p.column == "" {
			return values
		}
		column, err := w.table.column(p.column)
		if err != nil {
			return values
		}
		if text, changes := becomes(column); changes {
			values = append(values, text)
		}
		return values
	})
}

// unlimited returns a statement that ignores limits of the session. The verb is INSERT or SELECT. A
// client such as mysql --safe-updates sets max_join_size, which must not make its deletes fail.
func (c *cascaded) unlimited(verb, rest string) string {
	if c.mariaDB {
		return fmt.Sprintf("SET STATEMENT sql_big_selects = 1, max_recursive_iterations = %d FOR %s%s", recursions, verb, rest)
	}
	return fmt.Sprintf("%s /*+ SET_VAR(max_join_size = 18446744073709551615) SET_VAR(cte_max_recursion_depth = %d) */%s", verb, recursions, rest)
}

// recursions exceeds the 15 levels that servers follow a foreign key to its own table.
const recursions = 100

// lockLevel locks the rows at the beginning of a path that a delete at its end deletes. READ
// COMMITTED takes no gap locks, so FOR SHARE lets another session insert a child of a row that it
// locks. Without the exclusive lock, such a child could be committed after the trigger has read the
// children and before the foreign key deletes them. DO cannot replace SELECT INTO: in MariaDB DO
// ignores a lock wait timeout.
func (c *cascaded) lockLevel(path []foreignKey) string {
	const row = "unstale_level1"
	c.locks = append(c.locks, path[0])
	alias, from := row, quote(path[0].child)+" AS "+row
	for i, key := range path[:len(path)-1] {
		parent := fmt.Sprint("unstale_level", i+2)
		from += " JOIN " + quote(key.parent) + " AS " + parent + " ON " + key.join(alias, parent)
		alias = parent
	}
	return "    BEGIN\n" +
		"      DECLARE unstale_rows BIGINT;\n" +
		"      " + c.unlimited("SELECT", " COUNT(*) INTO unstale_rows FROM (\n") +
		"        SELECT " + row + "." + quote(path[0].columns[0]) + " FROM " + from + "\n" +
		"        WHERE " + path[len(path)-1].join(alias, oldRow) + " FOR UPDATE) AS unstale_locked;\n" +
		"    END;\n"
}

// insertSelect inserts outbox rows, with an ID, for the rows that from selects, after a WITH clause
// or "". becomes, if set, returns the new value of a column.
func (c *cascaded) insertSelect(w *writer, indent, id, with, from string, becomes func(Column) (string, bool)) string {
	return w.insertion(indent, func(indent string, to destination) string {
		return indent + c.unlimited("INSERT", " INTO "+to.into()) + "\n" +
			indent + "  " + with + "SELECT " + to.values(w.Entity, id, w.paramsOf(becomes)) + "\n" +
			indent + "  " + from + " AND " + id + " IS NOT NULL" + c.share + ";\n"
	})
}

// treeRow is the alias of all rows that a delete deletes in the table of its trigger.
const treeRow = "unstale_tree"

// tree returns the WITH clause of [treeRow]: the deleted row, and all rows below it by keys of the
// table to itself. It has the columns that these keys and last refer to. A row without references
// is the end of its branch. A circle of rows ends too, because UNION omits duplicates.
func (c *cascaded) tree(own []foreignKey, last foreignKey) string {
	var columns []string
	for _, key := range slices.Concat(own, []foreignKey{last}) {
		for _, reference := range key.references {
			if name := quote(reference); !slices.Contains(columns, name) {
				columns = append(columns, name)
			}
		}
	}
	of := func(row string) string { return row + "." + strings.Join(columns, ", "+row+".") }
	with := "WITH RECURSIVE " + treeRow + " (" + strings.Join(columns, ", ") + ") AS (\n" +
		"        (SELECT " + of(oldRow) + ")"
	for _, key := range own {
		with += "\n        UNION (SELECT " + of(child) + " FROM " + treeRow + " JOIN " + quote(key.child) + " AS " + child + " ON " + key.join(child, treeRow) + c.share + ")"
	}
	return with + ")\n      "
}

// A foreignKey is a key that lets a change of the parent change rows of the child, without firing
// the child's triggers.
type foreignKey struct {
	name, child, parent string
	elsewhere           bool     // the parent is in another database
	columns, references []string // of child and parent, in the same order
	onDelete, onUpdate  string   // CASCADE, SET NULL, ...; "" if the account may not see it
}

// Contract: no lock; the dictionary, one row per column of the foreign keys of one database. In
// MariaDB names of constraints are unique per table.
const foreignKeysSQL = `SELECT k.constraint_name, k.table_name, k.referenced_table_name, k.referenced_table_schema <> DATABASE(),
k.column_name, k.referenced_column_name, COALESCE(r.delete_rule, ''), COALESCE(r.update_rule, '')
FROM information_schema.key_column_usage AS k
LEFT JOIN information_schema.referential_constraints AS r
ON r.constraint_schema = k.constraint_schema AND r.constraint_name = k.constraint_name AND r.table_name = k.table_name
WHERE k.table_schema = DATABASE() AND k.referenced_table_name IS NOT NULL
ORDER BY k.table_name, k.constraint_name, k.ordinal_position`

func readForeignKeys(ctx context.Context, db *sql.DB) (all []foreignKey, err error) {
	columns, err := queryAll(ctx, db, "the foreign keys", func(f *foreignKey) []any {
		f.columns, f.references = make([]string, 1), make([]string, 1)
		return []any{&f.name, &f.child, &f.parent, &f.elsewhere, &f.columns[0], &f.references[0], &f.onDelete, &f.onUpdate}
	}, foreignKeysSQL)
	for _, f := range columns {
		if n := len(all); n > 0 && all[n-1].name == f.name && all[n-1].child == f.child {
			last := &all[n-1]
			last.columns, last.references = append(last.columns, f.columns...), append(last.references, f.references...)
		} else {
			all = append(all, f)
		}
	}
	return all, err
}

// sets reports whether a rule changes the child's columns.
func sets(rule string) bool { return rule == "CASCADE" || strings.HasPrefix(rule, "SET ") }

// empties reports whether a delete of the parent changes the child's columns, and leaves its rows.
func (f foreignKey) empties() bool { return sets(f.onDelete) && f.onDelete != "CASCADE" }

// join returns the condition that rows of child and parent belong together, under the given
// aliases.
func (f foreignKey) join(child, parent string) string {
	var all []string
	for i := range f.columns {
		all = append(all, child+"."+quote(f.columns[i])+" = "+parent+"."+quote(f.references[i]))
	}
	return strings.Join(all, " AND ")
}

// String returns a description for messages.
func (f foreignKey) String() string {
	return fmt.Sprintf("%s (ON DELETE %s, ON UPDATE %s)", f.between(), f.onDelete, f.onUpdate)
}

// hidden returns an error if the account cannot see the action of the key.
func (f foreignKey) hidden() error {
	if f.onDelete != "" {
		return nil
	}
	return fmt.Errorf("the account may not see what %s does when its parent changes, which this version of MariaDB shows only to an account with a right beside SELECT on the whole database; GRANT TRIGGER ON it", f.between())
}

func (f foreignKey) between() string {
	return fmt.Sprintf("the foreign key %s from %s to %s", f.name, f.child, f.parent)
}

// touches reports whether the key contains one of the columns.
func (f foreignKey) touches(columns []string) bool {
	return slices.ContainsFunc(columns, func(c string) bool { return indexFold(f.columns, c) >= 0 })
}

// indexFold returns the index of a column name in a list, ignoring case.
func indexFold(list []string, name string) int {
	return slices.IndexFunc(list, func(s string) bool { return strings.EqualFold(s, name) })
}
