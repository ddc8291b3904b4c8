package capture

import (
	"context"
	"slices"
)

// mostOpens ends the count: foreign keys in many layers make more paths than can be counted.
const mostOpens = 100_000

// MostOpens returns the captured table whose deletes open the most tables in MySQL, and about how
// many. MySQL (9.7.4) opens a table once for each path of foreign keys to it, with the outbox if it
// has triggers: findings/mysql-cascades-open-tables-by-path.sh. MariaDB opens each table once, so for
// MariaDB the number is 0.
func MostOpens(ctx context.Context, c *Capturer) (table string, n int, err error) {
	keys, err := readForeignKeys(ctx, c.DB)
	if err != nil {
		return "", 0, err
	}
	if mariaDB, err := isMariaDB(ctx, c.DB); mariaDB || err != nil {
		return "", 0, err
	}
	children, captured := map[string][]string{}, map[string]bool{}
	for _, k := range keys {
		if sets(k.onDelete) && !k.elsewhere {
			children[k.parent] = append(children[k.parent], k.child)
		}
	}
	for _, one := range c.Captures {
		captured[one.Table] = true
	}
	for _, one := range c.Captures {
		if opens := countOpens(children, captured, nil, one.Table); opens > n {
			table, n = one.Table, opens
		}
	}
	return table, n, nil
}

// countOpens counts the tables that a delete opens from a table on, to which path leads.
func countOpens(children map[string][]string, captured map[string]bool, path []string, table string) (n int) {
	if slices.Contains(path, table) {
		return 0
	}
	n = 1
	if captured[table] {
		n++ // the outbox
	}
	path = append(path, table)
	for _, child := range children[table] {
		if n += countOpens(children, captured, path, child); n >= mostOpens {
			return mostOpens
		}
	}
	return n
}
