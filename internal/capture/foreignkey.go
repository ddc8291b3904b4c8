package capture

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
)

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

// nameIn returns the name of the key in the captures of a table.
func (f foreignKey) nameIn(table string) string {
	if f.child == table {
		return f.name
	}
	return f.child + "." + f.name
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
