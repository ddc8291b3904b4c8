package capture

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/unstale/unstale/invalidation"
	"github.com/unstale/unstale/protocol"
)

// A Description is a table with its keys, from which a map can be drafted.
type Description struct {
	Table
	Key     []Column    // columns of the primary key, or of a unique key without NULL; none: no key
	KeyName string      // name of that key
	Parents []Reference // its foreign keys, by name
	Err     error       // why the table cannot be captured, or nil
}

// A Reference is a foreign key of a table.
type Reference struct {
	Parent              string
	Columns, References []string // of the table and of the parent, in the same order
	Cascades            bool     // a delete of the parent deletes the row
}

// Contract: no lock; the dictionary. Names are ordered bytewise, since collations differ.
const (
	tableNamesSQL = `SELECT table_name FROM information_schema.tables
WHERE table_schema = DATABASE() AND table_name NOT LIKE 'cache\_outbox%' ORDER BY CAST(table_name AS BINARY)`
	uniqueKeysSQL = `SELECT table_name, index_name, COALESCE(column_name, ''), nullable = 'YES' OR column_name IS NULL
FROM information_schema.statistics WHERE table_schema = DATABASE() AND non_unique = 0
ORDER BY CAST(table_name AS BINARY), index_name <> 'PRIMARY', CAST(index_name AS BINARY), seq_in_index`
)

type uniqueKey struct {
	table, name string
	columns     []string
	nullable    bool // so several rows may have NULL
}

// Describe returns the tables and views of the database, except the tables of unstale, ordered by
// name.
func Describe(ctx context.Context, db *sql.DB) ([]Description, error) {
	mariaDB, err := isMariaDB(ctx, db)
	if err != nil {
		return nil, err
	}
	names, err := queryAll(ctx, db, "the names of tables", func(name *string) []any { return []any{name} }, tableNamesSQL)
	if err != nil {
		return nil, err
	}
	unique, err := readUniqueKeys(ctx, db)
	if err != nil {
		return nil, err
	}
	foreign, err := readForeignKeys(ctx, db)
	if err != nil {
		return nil, err
	}
	all := make([]Description, len(names))
	for i, name := range names {
		d := &all[i]
		if d.Table, d.Err = readTable(ctx, db, mariaDB, name); ctx.Err() != nil {
			return nil, d.Err
		}
		d.Name = name
		d.KeyName, d.Key = d.key(unique[name])
		for _, key := range foreign {
			if key.child == name && !key.elsewhere {
				d.Parents = append(d.Parents, Reference{key.parent, key.columns, key.references, key.onDelete == "CASCADE"})
			}
		}
	}
	return all, nil
}

// key returns the name and the columns of the first unique key without NULL, or none.
func (t *Table) key(unique []uniqueKey) (name string, columns []Column) {
	i := slices.IndexFunc(unique, func(k uniqueKey) bool { return !k.nullable })
	if i < 0 {
		return "", nil
	}
	for _, column := range unique[i].columns {
		c, _ := t.column(column)
		columns = append(columns, c)
	}
	return unique[i].name, columns
}

// readUniqueKeys returns the unique keys of each table, the primary key first.
func readUniqueKeys(ctx context.Context, db *sql.DB) (map[string][]uniqueKey, error) {
	columns, err := queryAll(ctx, db, "the unique keys", func(k *uniqueKey) []any {
		k.columns = make([]string, 1)
		return []any{&k.table, &k.name, &k.columns[0], &k.nullable}
	}, uniqueKeysSQL)
	all := map[string][]uniqueKey{}
	for _, k := range columns {
		keys := all[k.table]
		if n := len(keys); n > 0 && keys[n-1].name == k.name {
			keys[n-1].columns = append(keys[n-1].columns, k.columns...)
			keys[n-1].nullable = keys[n-1].nullable || k.nullable
		} else {
			all[k.table] = append(keys, k)
		}
	}
	return all, err
}

// IDSource returns the source of an ID that is made of columns: the column itself if it has a text
// that fits, otherwise an expression. The values of several columns are joined by colons. Bytes
// become lower-case hexadecimal. Text that may not fit is cut.
func IDSource(columns []Column) invalidation.Source {
	if len(columns) == 1 {
		c := columns[0]
		if _, err := c.textSQL(newRow); err == nil && c.fits() == nil {
			return invalidation.Source(c.Name)
		}
	}
	var parts []string
	length := uint64(0)
	for _, c := range columns {
		parts = append(parts, c.Text("{row}"))
		length += 1 + max(c.Length, 20)
		if slices.Contains(bytesKinds, strings.ToUpper(c.Type)) {
			length += c.Length
		}
	}
	text := parts[0]
	if len(parts) > 1 {
		text = "CONCAT_WS(':', " + strings.Join(parts, ", ") + ")"
	}
	if length > protocol.MaxID+1 {
		text = fmt.Sprintf("LEFT(%s, %d)", text, protocol.MaxID)
	}
	return invalidation.Source(text)
}

// Text returns an expression for the column's text in a row, {row} or an alias of the table. It
// equals the text that a trigger writes.
func (c Column) Text(row string) string {
	name := row + "." + quote(c.Name)
	_, err := c.textSQL(row)
	unfit, ok := errors.AsType[unfitError](err)
	switch {
	case c.Zerofill:
		return "(" + name + " + 0)"
	case !ok:
		return name
	case slices.Contains(bytesKinds, strings.ToUpper(c.Type)) && c.Type != "bit":
		return "LOWER(HEX(" + name + "))"
	}
	return fmt.Sprintf(unfit.use, name)
}

// QuoteName quotes an identifier of SQL.
func QuoteName(name string) string { return quote(name) }
