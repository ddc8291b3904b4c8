package capture

import (
	"fmt"
	"slices"
	"strings"
)

// A delete passes the tables of a path of foreign keys, from its last key to its first one. On each
// level it also deletes the rows below, if the table refers to itself. Such a level is a tree.

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

// below returns the keys by which a delete in a table deletes more rows of the same table.
func (c *cascaded) below(table string) (all []foreignKey) {
	for _, key := range c.keys {
		if key.child == table && key.parent == table && !key.elsewhere && key.onDelete == "CASCADE" {
			all = append(all, key)
		}
	}
	return all
}

// level returns the FROM clause and the condition of the rows at the beginning of a path that a
// delete at its end deletes or changes, and the table expressions that these read: one for each
// tree above the first level. lock is the suffix of a SELECT of other tables than the trigger's.
func (c *cascaded) level(path []foreignKey, name aliases, space, lock string) (with []string, from, where string) {
	from = "FROM " + quote(path[0].child) + " AS " + name(0)
	for i, key := range path {
		parent := name(i + 1)
		if own := c.below(key.parent); len(own) > 0 {
			with, parent = c.tree(path[i:], own, lock)
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

// tree returns the table expressions up to the one with all rows that the delete deletes in the
// parent of a path's first key, and its name: rows that another table's delete reaches, or the
// deleted row, and all rows below these by keys of the table to itself. It has the columns that these
// keys and the first one refer to. A row without references is the end of its branch. A circle of
// rows ends too, because UNION omits duplicates.
func (c *cascaded) tree(path, own []foreignKey, lock string) (with []string, name string) {
	var names, columns []string
	for _, key := range slices.Concat(own, path[:1]) {
		for _, reference := range key.references {
			if indexFold(names, reference) < 0 {
				names, columns = append(names, reference), append(columns, quote(reference))
			}
		}
	}
	of := func(row string) string { return row + "." + strings.Join(columns, ", "+row+".") }
	name, first := treeRow, "SELECT "+of(oldRow)
	if len(path) == 1 { // the table of the trigger, whose rows it cannot lock
		lock = c.share
	} else {
		name += fmt.Sprint(len(path) - 1)
		above, from, where := c.level(path[1:], insertAliases, " ", lock)
		with, first = above, "SELECT "+of(child)+" "+from+" WHERE "+where+lock
	}
	text := name + " (" + strings.Join(columns, ", ") + ") AS (\n        (" + first + ")"
	for _, key := range own {
		text += "\n        UNION (SELECT " + of(child) + " FROM " + name + " JOIN " + quote(key.child) + " AS " + child + " ON " + key.join(child, name) + lock + ")"
	}
	return append(with, text+")"), name
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
func (c *cascaded) lockLevel(path []foreignKey, level int) string {
	const lock = " FOR UPDATE"
	key := path[level]
	c.locks = append(c.locks, key)
	var rows string
	if own := c.below(key.child); len(own) > 0 {
		with, name := c.tree(path[level-1:], own, lock)
		rows = withClause(with) + "  SELECT * FROM " + name
	} else {
		with, from, where := c.level(path[level:], lockAliases, " ", lock)
		rows = withClause(with) + "SELECT " + lockAliases(0) + "." + quote(key.columns[0]) + " " + from + "\n        WHERE " + where + lock
	}
	return "    BEGIN\n" +
		"      DECLARE unstale_rows BIGINT;\n" +
		"      " + c.unlimited("SELECT", " COUNT(*) INTO unstale_rows FROM (\n") +
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
