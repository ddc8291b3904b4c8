package capture

import (
	"fmt"
	"slices"
	"strings"
)

// A delete passes the tables of a path of foreign keys, from its last key to its first one. On each
// level it also deletes the rows below, if the table refers to itself, or if tables refer to each
// other in a cycle. Such a level is a tree.

// A deletion is what a delete in a table deletes, for a writer.
type deletion struct {
	*cascaded
	w    *writer
	root string // the table, which has the trigger
}

// child is the alias, in a trigger, of the row that a foreign key will change.
const child = "unstale_child"

// treeRow is the alias of all rows that a delete deletes in the table of its trigger.
const treeRow = "unstale_tree"

// aliases returns the aliases of the tables of a path, beginning at its first child.
type aliases func(level int) string

func insertAliases(level int) string {
	if level == 0 {
		return child
	}
	return fmt.Sprint("unstale_parent", level)
}

func lockAliases(level int) string { return fmt.Sprint("unstale_level", level+1) }

// A cycleOf is a table for a writer that ignores keys, or, without a writer, for all others.
type cycleOf struct {
	w     *writer
	table string
}

// cycle returns the keys that make a delete in a table delete more rows of the same table: its keys
// to itself, and all keys of a cycle of tables.
func (c *cascaded) cycle(w *writer, table string) (own []foreignKey) {
	at := cycleOf{w, table}
	if len(w.Ignored) == 0 {
		at.w = nil
	}
	if own, known := c.cycles[at]; known {
		return own
	}
	cascades := func(k foreignKey) bool {
		return k.onDelete == "CASCADE" && !k.elsewhere && (k.child == k.parent || !w.ignores(k, onDelete))
	}
	var reach func(tables map[string]bool, table string, ends func(foreignKey) (from, to string))
	reach = func(tables map[string]bool, table string, ends func(foreignKey) (from, to string)) {
		tables[table] = true
		for _, k := range c.keys {
			if from, to := ends(k); from == table && !tables[to] && cascades(k) {
				reach(tables, to, ends)
			}
		}
	}
	above, below := map[string]bool{}, map[string]bool{}
	reach(above, table, func(k foreignKey) (string, string) { return k.child, k.parent })
	reach(below, table, func(k foreignKey) (string, string) { return k.parent, k.child })
	for _, k := range c.keys {
		if cascades(k) && above[k.child] && below[k.child] && above[k.parent] && below[k.parent] {
			own = append(own, k)
		}
	}
	c.cycles[at] = own
	return own
}

// ring returns the tables of the cycle of a table, which may be the only one.
func (c *cascaded) ring(w *writer, table string) []string {
	all := []string{table}
	for _, key := range c.cycle(w, table) {
		if !slices.Contains(all, key.child) {
			all = append(all, key.child)
		}
	}
	return all
}

// level returns the FROM clause and the condition of the rows at the beginning of a path that a
// delete at its end deletes or changes, and the table expressions that these read: one for each
// tree above the first level. lock is the suffix of a SELECT of other tables than the trigger's.
func (d deletion) level(path []foreignKey, name aliases, space, lock string) (with []string, from, where string) {
	from = "FROM " + quote(path[0].child) + " AS " + name(0)
	for i, key := range path {
		parent := name(i + 1)
		if own := d.cycle(d.w, key.parent); len(own) > 0 {
			with, parent, key = d.tree(path[i:], own, lock)
			return with, from + space + "JOIN " + parent, key.join(name(i), parent)
		}
		if i == len(path)-1 {
			parent = oldRow
		} else {
			from += space + "JOIN " + quote(key.parent) + " AS " + parent + " ON "
		}
		where = key.join(name(i), parent)
		if i < len(path)-1 {
			from += where
		}
	}
	return nil, from, where
}

// A treeColumn is a column of a tree, of one of its tables.
type treeColumn struct{ table, name string }

// tree returns the table expressions up to the tree of a path's first parent, the tree's name, and
// the path's first key with references to the tree. A tree has all rows that the delete deletes in
// the cycle of that parent: the rows that another table's delete reaches, or the deleted row, and
// all rows below these by keys of the cycle. Its columns are those that these keys and the first
// one refer to; in a row of one table, the columns of others are NULL. A row without references is
// the end of its branch. A cycle of rows ends too, because UNION omits duplicates.
func (d deletion) tree(path, own []foreignKey, lock string) (with []string, name string, first foreignKey) {
	tables := d.ring(d.w, path[0].parent)
	var columns []treeColumn
	find := func(table, name string) int {
		return slices.IndexFunc(columns, func(c treeColumn) bool { return c.table == table && strings.EqualFold(c.name, name) })
	}
	for _, key := range slices.Concat(own, path[:1]) {
		for _, reference := range key.references {
			if find(key.parent, reference) < 0 {
				columns = append(columns, treeColumn{key.parent, reference})
			}
		}
	}
	list := func(value func(i int, of treeColumn) string) string {
		var all []string
		for i, column := range columns {
			all = append(all, value(i, column))
		}
		return strings.Join(all, ", ")
	}
	as := func(i int, of treeColumn) string { // its name in the tree
		if len(tables) == 1 {
			return of.name
		}
		return fmt.Sprint(treeRow, "_", i)
	}
	toTree := func(key foreignKey) foreignKey {
		key.references = slices.Clone(key.references)
		for i, reference := range key.references {
			at := find(key.parent, reference)
			key.references[i] = as(at, columns[at])
		}
		return key
	}
	row := func(table, alias, others string) string {
		return "SELECT " + list(func(_ int, of treeColumn) string {
			switch {
			case of.table == table:
				return alias + "." + quote(of.name)
			case others == "":
				return "NULL"
			}
			return fmt.Sprint(others, slices.Index(tables, of.table), ".", quote(of.name))
		})
	}
	name = treeRow
	start, alias, from, end := d.root, oldRow, "", ""
	if len(path) > 1 {
		name += fmt.Sprint(len(path) - 1)
		var where string
		with, from, where = d.level(path[1:], insertAliases, " ", lock)
		start, alias, from, end = path[1].child, child, " "+from, " WHERE "+where+lock
	} else if len(tables) > 1 {
		from = " FROM (SELECT 1) AS unstale_one"
	}
	for i, table := range tables { // the first SELECT gives the columns their types
		if table != start {
			from += fmt.Sprint(" LEFT JOIN ", quote(table), " AS unstale_none", i, " ON FALSE")
		}
	}
	text := name + " (" + list(func(i int, of treeColumn) string { return quote(as(i, of)) }) + ") AS (\n        (" + row(start, alias, "unstale_none") + from + end + ")"
	for _, key := range own {
		locks := lock
		if key.child == d.root { // whose rows its trigger cannot lock
			locks = d.share
		}
		text += "\n        UNION (" + row(key.child, child, "") + " FROM " + name + " JOIN " + quote(key.child) + " AS " + child + " ON " + toTree(key).join(child, name) + locks + ")"
	}
	return append(with, text+")"), name, toTree(path[0])
}

// withClause returns the WITH clause of table expressions, or "".
func withClause(all []string) string {
	if len(all) == 0 {
		return ""
	}
	return "WITH RECURSIVE " + strings.Join(all, ",\n      ") + "\n      "
}

// lockLevel locks the rows of a level of a path that a delete at its end deletes. READ
// COMMITTED takes no gap locks, so FOR SHARE lets another session insert a child of a row that it
// locks. Without the exclusive lock, such a child could be committed after the trigger has read the
// children and before the foreign key deletes them. DO cannot replace SELECT INTO: in MariaDB DO
// ignores a lock wait timeout.
func (d deletion) lockLevel(path []foreignKey, level int) string {
	const lock = " FOR UPDATE"
	own := d.cycle(d.w, path[level-1].parent)
	for _, key := range slices.Concat(path[level:min(level+1, len(path))], own) {
		if key.child != d.root && !slices.ContainsFunc(d.locks, func(k foreignKey) bool { return k.child == key.child }) {
			d.locks = append(d.locks, key)
		}
	}
	var rows string
	if len(own) > 0 {
		with, name, _ := d.tree(path[level-1:], own, lock)
		rows = withClause(with) + "  SELECT * FROM " + name
	} else {
		with, from, where := d.level(path[level:], lockAliases, " ", lock)
		rows = withClause(with) + "SELECT " + lockAliases(0) + "." + quote(path[level].columns[0]) + " " + from + "\n        WHERE " + where + lock
	}
	return "    BEGIN\n" +
		"      DECLARE unstale_rows BIGINT;\n" +
		"      " + d.unlimited("SELECT", " COUNT(*) INTO unstale_rows FROM (\n") +
		"        " + rows + ") AS unstale_locked;\n" +
		"    END;\n"
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
