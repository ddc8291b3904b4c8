package capture

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/unstale/unstale/internal/sqltext"
)

// changedRow is the alias of a row of a child with its new values. If a foreign key changes columns
// that an expression uses, a derived table has the row, and the expression is computed there.
const changedRow = "unstale_new"

// A newValue is a column that a foreign key changes, with its value in SQL.
type newValue struct{ column, sql string }

// newValues returns the values that a key sets, and the values that other keys set with it, if the
// row refers to the same parent by these too. fires returns a further condition of another key, which
// begins with AND, or "".
func newValues(key foreignKey, others []foreignKey, fires func(k foreignKey) string, value func(k foreignKey, i int) string) (all []newValue) {
	for i, column := range key.columns {
		all = append(all, newValue{column, value(key, i)})
	}
	for _, k := range others {
		for i, column := range k.columns {
			if indexFold(key.columns, column) < 0 {
				all = append(all, newValue{column, "CASE WHEN " + k.join(child, oldRow) + fires(k) + " THEN " + value(k, i) + " ELSE " + child + "." + quote(column) + " END"})
			}
		}
	}
	return all
}

// nullOf returns NULL of the type of a column.
func nullOf(column string) string {
	return fmt.Sprintf("NULLIF(%[1]s.%[2]s, %[1]s.%[2]s)", child, quote(column))
}

// beside returns the other keys with the child and the parent of a key, if both change columns of the
// ID or of params. A row may refer to its parent by several keys, which change it together.
func (c *cascaded) beside(w *writer, key foreignKey, changes func(foreignKey) bool) (all []foreignKey) {
	for _, k := range c.keys {
		own := slices.DeleteFunc(slices.Clone(k.columns), func(column string) bool { return indexFold(key.columns, column) >= 0 })
		if k.child == key.child && k.parent == key.parent && k.elsewhere == key.elsewhere && changes(k) && w.sourcesUse(own) && w.sourcesUse(key.columns) {
			all = append(all, k)
		}
	}
	return all
}

// An emptying is the deletion of rows of a root table, for a writer. Each has the names of the keys
// that it sets to NULL, in columns of expressions.
type emptying struct {
	root string
	w    *writer
}

// emptiedValues returns the values of a row when the first key of a path sets it to NULL. Two keys
// whose paths have one root may do so together. That can be seen only if both refer to the root.
func (d deletion) emptiedValues(path []foreignKey) ([]newValue, error) {
	key, at := path[0], emptying{d.root, d.w}
	others, direct := d.beside(d.w, key, foreignKey.empties), len(path) == 1 && len(d.cycle(d.w, d.root)) == 0
	for _, other := range d.emptied[at] {
		if other != key.name && !(direct && slices.ContainsFunc(others, func(k foreignKey) bool { return k.name == other })) {
			return nil, errors.New("expressions use its columns and the columns of " + other + ", which sets NULL with it")
		}
	}
	d.emptied[at] = append(d.emptied[at], key.name)
	if !direct {
		others = nil
	}
	return newValues(key, others, func(foreignKey) string { return "" }, func(k foreignKey, i int) string { return nullOf(k.columns[i]) }), nil
}

// insertComputed inserts outbox rows for the old and the new ID of the rows that from selects, with
// the old and the new params.
func (c *cascaded) insertComputed(w *writer, indent, with, from string, values []newValue) string {
	var changed []string
	for _, v := range values {
		changed = append(changed, v.column)
	}
	oldID := w.table.unused("unstale_id")
	columns := []string{w.id.of(child) + " AS " + oldID}
	params := w.paramsObject(func(p param) []string {
		old := w.table.unused(fmt.Sprint("unstale_param", len(columns)))
		columns = append(columns, p.of(child)+" AS "+old)
		both := []string{changedRow + "." + old}
		if p.mayUse(changed) {
			both = append(both, p.of(changedRow))
		}
		return both
	})
	for _, column := range w.table.Columns {
		if !w.sourcesUse([]string{column.Name}) {
			continue
		}
		value := child + "." + quote(column.Name)
		if i := indexFold(changed, column.Name); i >= 0 {
			value = values[i].sql
		}
		columns = append(columns, value+" AS "+quote(column.Name))
	}
	insert := func(id, condition string) string {
		return w.insertion(indent, func(indent string, to destination) string {
			return indent + c.unlimited("INSERT", " INTO "+to.into()) + "\n" +
				indent + "  " + with + "SELECT " + to.values(w.Entity, id, params) + "\n" +
				indent + "  FROM (SELECT " + strings.Join(columns, ", ") + " " + from + c.share + ") AS " + changedRow + "\n" +
				indent + "  WHERE " + condition + ";\n"
		})
	}
	oldID = changedRow + "." + oldID
	statements := insert(oldID, oldID+" IS NOT NULL")
	if w.id.mayUse(changed) {
		id := w.id.of(changedRow)
		statements += insert(id, id+" IS NOT NULL AND NOT (CAST("+oldID+" AS BINARY) <=> CAST("+id+" AS BINARY))")
	}
	return statements
}

// mayUse reports whether the source is one of the columns, or an expression that may use one.
func (s source) mayUse(columns []string) bool {
	if s.column != "" {
		return indexFold(columns, s.column) >= 0
	}
	return mentions(s.text, columns)
}

// mentions reports whether an expression may use one of the columns.
func mentions(expression string, columns []string) bool {
	expression = strings.ToLower(strings.ReplaceAll(expression, "``", "`"))
	return slices.ContainsFunc(columns, func(c string) bool { return strings.Contains(expression, strings.ToLower(c)) })
}

// sourcesUse reports whether the ID or a param may use one of the columns.
func (w *writer) sourcesUse(columns []string) bool {
	return w.id.mayUse(columns) || slices.ContainsFunc(w.params, func(p param) bool { return p.mayUse(columns) })
}

// computes reports whether an expression may use one of the columns.
func (w *writer) computes(columns []string) bool {
	expression := func(s source) bool { return s.column == "" && s.mayUse(columns) }
	return expression(w.id) || slices.ContainsFunc(w.params, func(p param) bool { return expression(p.source) })
}

// asks reports whether an expression that may use one of the columns has a subquery, which sees the
// parent before its change.
func asks(w *writer, columns []string) bool {
	query := func(s source) bool {
		return s.column == "" && s.mayUse(columns) && slices.ContainsFunc(sqltext.Tokens(s.text), func(t string) bool { return strings.EqualFold(t, "SELECT") })
	}
	return query(w.id) || slices.ContainsFunc(w.params, func(p param) bool { return query(p.source) })
}

// generates reports whether the ID or a param may use a column that is generated from one of the
// columns.
func (w *writer) generates(columns []string) bool {
	from, before := columns, -1
	for before < len(from) {
		before = len(from)
		for _, c := range w.table.Columns {
			if c.Generated != "" && indexFold(from, c.Name) < 0 && mentions(c.Generated, from) {
				from = append(slices.Clip(from), c.Name)
			}
		}
	}
	return w.sourcesUse(from[len(columns):])
}

// isVirtual reports whether a column is computed from others, possibly from columns of a key.
func (w *writer) isVirtual(name string) bool {
	column, err := w.table.column(name)
	return err == nil && column.Virtual
}
