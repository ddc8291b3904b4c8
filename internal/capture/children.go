package capture

import (
	"fmt"
	"slices"
	"strings"
)

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
