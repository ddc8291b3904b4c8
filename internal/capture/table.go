package capture

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/unstale/unstale/internal/mysqlerr"
	"github.com/unstale/unstale/invalidation"
	"github.com/unstale/unstale/protocol"
)

// A Table is a table as the server describes it.
type Table struct {
	Name    string
	Columns []Column
}

// Contract: no lock; the dictionary, one row for each column of one table.
const (
	columnsSQL = `SELECT column_name, LOWER(data_type), COALESCE(character_maximum_length, 0), LOWER(column_type) LIKE '%zerofill%',
UPPER(extra) LIKE '%VIRTUAL%', COALESCE(generation_expression, '')
FROM information_schema.columns
WHERE table_schema = DATABASE() AND table_name = ? ORDER BY ordinal_position`
	tableTypeSQL = `SELECT COALESCE(MAX(t.table_type), ''), COALESCE(MAX(t.table_name), ''), COALESCE(MAX(t.engine), ''), COALESCE(MAX(e.transactions), '')
FROM information_schema.tables AS t LEFT JOIN information_schema.engines AS e ON e.engine = t.engine
WHERE t.table_schema = DATABASE() AND t.table_name = ?`
)

// readTable returns the table with a name, in the connection's database.
func readTable(ctx context.Context, db *sql.DB, mariaDB bool, name string) (Table, error) {
	var t Table // the name may differ in case on a server that ignores it
	var kind, engine, transactions string
	if err := db.QueryRowContext(ctx, tableTypeSQL, name).Scan(&kind, &t.Name, &engine, &transactions); err != nil {
		return t, fmt.Errorf("look for the table %s: %w", name, err)
	}
	switch kind {
	case "BASE TABLE", "SYSTEM VERSIONED":
	case "":
		return t, fmt.Errorf("the database has no table %s, or the account may not see it: GRANT SELECT, TRIGGER on it", name)
	default:
		return t, fmt.Errorf("%s is a %s, which has no triggers; name the table that it reads", name, strings.ToLower(kind))
	}
	if transactions == "NO" {
		return t, fmt.Errorf("%s is of the engine %s, which has no transactions: a row of the outbox could not share the fate of the write; use InnoDB", name, engine)
	}
	var err error
	t.Columns, err = queryAll(ctx, db, "the columns of "+name, func(c *Column) []any {
		c.MariaDB = mariaDB
		return []any{&c.Name, &c.Type, &c.Length, &c.Zerofill, &c.Virtual, &c.Generated}
	}, columnsSQL, name)
	if err == nil {
		err = t.checkVisible(ctx, db)
	}
	return t, err
}

// Contract: no lock on rows. Any privilege on the whole table shows all of it.
const createdSQL = "SHOW CREATE TABLE "

// createdColumn matches a column in the output of SHOW CREATE TABLE. Settings choose the quotes.
var createdColumn = regexp.MustCompile("(?m)^  (?:`((?:[^`]|``)*)`|\"((?:[^\"]|\"\")*)\") ")

// checkVisible returns an error if the account does not see all columns. The information_schema
// hides columns without a privilege, and with them the foreign keys. A trigger would ignore both.
func (t *Table) checkVisible(ctx context.Context, db *sql.DB) error {
	texts, err := queryAll(ctx, db, "the definition of "+t.Name, func(text *string) []any { return []any{new(any), text} }, createdSQL+quote(t.Name))
	if n := mysqlerr.Number(err); n == mysqlerr.NoRight {
		return fmt.Errorf("the account may not see all of the table: %w; GRANT SELECT ON %s to it", err, quote(t.Name))
	}
	if err != nil {
		return err
	}
	var names, hidden []string
	for _, m := range createdColumn.FindAllStringSubmatch(texts[0], -1) {
		name := strings.ReplaceAll(m[1], "``", "`") + strings.ReplaceAll(m[2], `""`, `"`)
		names = append(names, name)
		if _, err := t.column(name); err != nil {
			hidden = append(hidden, quote(name))
		}
	}
	switch {
	case len(hidden) > 0:
		return fmt.Errorf("the account does not see the columns %s, so their changes would leave no row; GRANT SELECT ON %s to it", strings.Join(hidden, ", "), quote(t.Name))
	case len(names) == 0:
		return errors.New("SHOW CREATE TABLE shows its columns without quotes; SET GLOBAL sql_quote_show_create = 1")
	}
	return nil
}

// A Fault is a part of a map's capture that the database does not allow.
type Fault struct {
	invalidation.Capture
	Err error
}

func (f Fault) Error() string {
	return fmt.Sprintf("line %d of the map: the capture of %s: %v", f.Line, f.Table, f.Err)
}

func (f Fault) Unwrap() error { return f.Err }

// Faults returns the faults that an error joins. It returns none for an error of another kind.
func Faults(err error) (all []Fault) {
	for _, one := range joined(err) {
		if fault, ok := errors.AsType[Fault](one); ok {
			all = append(all, fault)
		}
	}
	return all
}

// joined returns the errors that errors.Join has joined.
func joined(err error) []error {
	if list, ok := err.(interface{ Unwrap() []error }); ok {
		return list.Unwrap()
	}
	if err == nil {
		return nil
	}
	return []error{err}
}

// byTable groups captures by table, in the order of their first occurrence.
func byTable(all []invalidation.Capture) (groups [][]invalidation.Capture) {
	at := map[string]int{}
	for _, c := range all {
		i, known := at[c.Table]
		if !known {
			i = len(groups)
			at[c.Table], groups = i, append(groups, nil)
		}
		groups[i] = append(groups[i], c)
	}
	return groups
}

// A Column is a column of a table as the server describes it.
type Column struct {
	Name     string
	Type     string // without its length, in lower case, such as varchar
	Length   uint64 // in characters, for text
	Zerofill bool
	Virtual  bool // generated from others when it is read
	MariaDB  bool // the server is MariaDB

	Generated string // expression that it is generated by, or ""
}

// The rows that a trigger sees.
const (
	oldRow   = "OLD"
	newRow   = "NEW"
	triedRow = "unstale_row" // in a SELECT
)

// same returns an expression that is true if the column has the same bytes in both rows, or is NULL
// in both. A collation treats 'été' and 'ETE' as equal, and JSON treats 1 and 1.0 as equal.
func (c Column) same() string {
	name, text := quote(c.Name), "%s.%s"
	compare := func(text string) string { return fmt.Sprintf(text+" <=> "+text, oldRow, name, newRow, name) }
	if c.isText() {
		return compare("CAST(%s.%s AS BINARY)")
	}
	switch c.Type {
	case "json":
		text = "CAST(CAST(%s.%s AS CHAR) AS BINARY)"
	case "timestamp": // whose text is the same twice where an hour of the session's time zone is
		text = "UNIX_TIMESTAMP(%s.%s)"
		if c.MariaDB { // the time zero is NULL in a trigger
			return compare(text) + alsoAsText(compare)
		}
	case "float", "double": // -0 equals 0
		return compare(text) + alsoAsText(compare)
	case "geometry", "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon", "geomcollection",
		"geometrycollection", "vector":
		text = "HEX(%s.%s)"
	}
	return compare(text)
}

// alsoAsText returns a second condition. It finds values whose texts differ although the server
// treats the values as equal.
func alsoAsText(compare func(text string) string) string {
	return "\n      AND " + compare("CAST(%s.%s AS CHAR)")
}

// textSQL returns an expression for the column's value in a row, in the form that applications
// write, or an error if there is none.
func (c Column) textSQL(row string) (string, error) {
	name := row + "." + quote(c.Name)
	if c.isText() {
		return plainText(name), nil
	}
	switch c.Type {
	case "tinyint", "smallint", "mediumint", "int", "bigint", "decimal":
		if c.Zerofill { // clients show the zeros, which are not part of the number
			name += " + 0"
		}
		return "CAST(" + name + " AS CHAR CHARACTER SET utf8mb4)", nil
	case "year", "date", "datetime", "time", "uuid", "inet4", "inet6":
		return "CAST(" + name + " AS CHAR CHARACTER SET utf8mb4)", nil
	case "timestamp":
		return "", c.refuse("its text depends on the time zone of the session that writes", "UNIX_TIMESTAMP(%s)")
	case "float", "double":
		return "", c.refuse("its text is not exact", "CAST(%s AS DECIMAL(30,6))")
	case "binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob":
		return "", c.refuse("it has bytes, and no text", "HEX(%[1]s), or BIN_TO_UUID(%[1]s) in MySQL")
	case "bit":
		return "", c.refuse("it has bits, and no text", "BIN(%s)")
	case "json":
		return "", c.refuse("it has no text of its own", "JSON_UNQUOTE(JSON_EXTRACT(%s, '$.sku'))")
	default:
		return "", c.refuse("it has no text of its own", "HEX(%s)")
	}
}

// plainText returns an expression's value as text, which JSON_ARRAY converts to a string: MariaDB
// would nest the value of a column that is declared as JSON.
func plainText(expression string) string {
	return "CONCAT('', CONVERT(" + expression + " USING utf8mb4))"
}

// textTypes are the types of text.
var textTypes = []string{"char", "varchar", "tinytext", "text", "mediumtext", "longtext", "enum", "set"}

// isText reports whether the type is one of text, so "" is a value of the column.
func (c Column) isText() bool { return slices.Contains(textTypes, c.Type) }

// An Empty is a capture whose ID is "" in rows that have "" in a column.
type Empty struct {
	invalidation.Capture
	Of Column
}

// String says what becomes of such rows.
func (e Empty) String() string {
	if e.IDInPattern == "" {
		return fmt.Sprintf("where %s is '', keys are unlinked with nothing in the place of {id}", e.Of.Name)
	}
	return fmt.Sprintf("each write where %s is '' makes a dead letter, because {id} in the pattern %q would match too much; leave such rows out with the id NULLIF({row}.%s, ''), or forbid them with CHECK (%[3]s <> '')",
		e.Of.Name, e.IDInPattern, quote(e.Of.Name))
}

// fits returns an error if the column's values cannot be IDs: a longer one would fail the write.
func (c Column) fits() error {
	if c.Length > protocol.MaxID {
		return fmt.Errorf("the column %s may have %d characters, an id of the outbox at most %d, and a longer one would fail the write; give an expression, such as LEFT({row}.%s, %d)",
			c.Name, c.Length, protocol.MaxID, quote(c.Name), protocol.MaxID)
	}
	return nil
}

// refuse returns an error with the reason why a column cannot be used, and a usable expression of
// it, %s.
func (c Column) refuse(why, expression string) error { return unfitError{c, why, expression} }

// An unfitError reports a column that a map can only use in an expression.
type unfitError struct {
	Column
	why, use string // use is an expression of the column, %s
}

func (e unfitError) Error() string {
	return fmt.Sprintf("the column %s is of the type %s: %s; give an expression, such as %s", e.Name, e.Type, e.why, fmt.Sprintf(e.use, "{row}."+quote(e.Name)))
}

// quote quotes an identifier.
func quote(name string) string { return "`" + strings.ReplaceAll(name, "`", "``") + "`" }

// literal returns a text literal. Only quotes and backslashes are special.
func literal(text string) string {
	return "'" + strings.NewReplacer("'", "''", `\`, `\\`).Replace(text) + "'"
}

// askServer returns the only value of a query. what names it in errors.
func askServer[T any](ctx context.Context, db *sql.DB, what, query string) (value T, err error) {
	if err = db.QueryRowContext(ctx, query).Scan(&value); err != nil {
		err = fmt.Errorf("ask for %s: %w", what, err)
	}
	return value, err
}

// queryAll returns the rows of a query. fields returns where the columns of one go, and what names
// the rows in errors.
func queryAll[T any](ctx context.Context, db *sql.DB, what string, fields func(*T) []any, query string, args ...any) (all []T, err error) {
	rows, err := db.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", what, err)
	}
	defer rows.Close()
	for rows.Next() {
		var t T
		if err := rows.Scan(fields(&t)...); err != nil {
			return nil, fmt.Errorf("read %s: %w", what, err)
		}
		all = append(all, t)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("read %s: %w", what, err)
	}
	return all, nil
}
