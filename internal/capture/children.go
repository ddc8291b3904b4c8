package capture

import (
	"fmt"
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

// recursions exceeds the needs of [maxCascade].
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

// insertSelect inserts outbox rows, with an ID, for the rows that from selects. becomes, if set,
// returns the new value of a column.
func (c *cascaded) insertSelect(w *writer, indent, id, from string, becomes func(Column) (string, bool)) string {
	return w.insertion(indent, func(indent string, to destination) string {
		return indent + c.unlimited("INSERT", " INTO "+to.into()) + "\n" +
			indent + "  SELECT " + to.values(w.Entity, id, w.paramsOf(becomes)) + "\n" +
			indent + "  " + from + " AND " + w.id.of(child) + " IS NOT NULL" + c.share + ";\n"
	})
}

// fromTree returns the FROM clause for a key to its own table: all rows below a deleted one.
func (c *cascaded) fromTree(w *writer, key foreignKey) string {
	var columns, below []string
	for i, reference := range key.references {
		columns = append(columns, child+"."+quote(reference))
		below = append(below, fmt.Sprintf("unstale_tree.c%d", i))
	}
	var names, on, same []string
	for i := range key.references {
		names = append(names, fmt.Sprintf("c%d", i))
		on = append(on, child+"."+quote(key.columns[i])+" = "+below[i])
		same = append(same, child+"."+quote(key.references[i])+" = "+below[i])
	}
	table := quote(w.table.Name) + " AS " + child
	return w.insertion("    ", func(indent string, to destination) string {
		return indent + c.unlimited("INSERT", " INTO "+to.into()) + "\n" +
			indent + "  WITH RECURSIVE unstale_tree (" + strings.Join(names, ", ") + ", level) AS (\n" +
			indent + "    (SELECT " + strings.Join(columns, ", ") + ", 1 FROM " + table + " WHERE " + key.join(child, oldRow) + c.share + ")\n" +
			indent + "    UNION ALL (SELECT " + strings.Join(columns, ", ") + ", unstale_tree.level + 1 FROM unstale_tree JOIN " + table + " ON " + strings.Join(on, " AND ") +
			fmt.Sprintf(" AND unstale_tree.level < %d", maxCascade) + c.share + "))\n" +
			indent + "  SELECT " + to.values(w.Entity, w.id.of(child), w.paramsOf(nil)) + "\n" +
			indent + "  FROM unstale_tree JOIN " + table + " ON " + strings.Join(same, " AND ") + " AND " + w.id.of(child) + " IS NOT NULL" + c.share + ";\n"
	})
}
